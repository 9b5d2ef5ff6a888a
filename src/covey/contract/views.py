"""What a part of a method may see: a cohort of clients, or the server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import Tensor

from covey.core.messages import Catalogue, Round, Sent
from covey.core.ragged import FieldDict, Fields, Ragged
from covey.core.rng import Rng

from .examples import Batch
from .model import NO_HISTORY, History, Model, rows
from .objective import Objective

Reads = Literal["each", "total"]  # whether a server half needs single entries, or sums are enough
StepPreview = Callable[[str, Tensor, Tensor], Tensor]  # table, rows [T], update [T, D] -> [T, D]


@dataclass(frozen=True)
class TrainingData:
    """What a client may learn from; held-out items are not in here.

    Args:
        items: The training items of each client, oldest first.
        avoid: Items of each client that are never drawn as negatives, sorted and distinct.
    """

    items: Ragged
    avoid: Ragged

    def take(self, pick: Tensor) -> "TrainingData":
        """The data of some of the clients."""
        return TrainingData(self.items.take(pick), self.avoid.take(pick))


@dataclass(frozen=True)
class ClientView:
    """A cohort of C clients as one mechanism sees it; each row is a client that knows only itself.

    Args:
        params: Parameters by name, [C or 1, ...]; a leading 1 means shared. Before training, item
            tables are whole, [C or 1, I, D]; in `prepare` and `loss` they hold the local rows that
            `batch` names.
        data: The clients' training data.
        received: What this mechanism's server half sent.
        rng: One random stream per client, for this mechanism and round.
        model: The model of the method.
        objective: The objective of the method.
        catalogue: What the server and all clients know about the items.
        batch: The examples of the current block; None before training.
        objective_state: The objective's own tensors for this block.
        prepared: What this mechanism's `prepare` returned.
        step: The number of the local step, in `loss`.
        valid: In `report`, the validation items, with which the client chooses between models.
    """

    params: Fields
    data: TrainingData
    received: Sent
    rng: Rng
    model: Model
    objective: Objective
    catalogue: Catalogue
    batch: Batch | None = None
    objective_state: Fields = field(default_factory=dict)
    prepared: Fields = field(default_factory=dict)
    step: int = 0
    valid: Ragged | None = None

    def user(self) -> Tensor:
        """User vectors, [C, D]: in training those of the current step, before it of whole lists."""
        if self.batch is None:
            return self.model.user(self.params, History.of(self.data.items), self.rng, False)
        known, state = NO_HISTORY, self.objective_state
        if "sequence" in state:
            known = History(state["sequence"], state["mask"])
        return self.model.user(self.params, known, self.rng, False)

    def objective_loss(self, params: Fields | None = None, u: Tensor | None = None) -> Tensor:
        """The objective's loss, [C], for the current batch.

        Args:
            params: Other parameters than the current ones.
            u: Other user vectors than those of the model, [C, D].
        """
        assert self.batch is not None
        params = self.params if params is None else params
        return self.objective.loss(
            self.model, params, self.batch, self.objective_state, self.rng, u
        )

    def rows(self, items_CL: Tensor) -> Tensor:
        """Rows of the item table, [C, L, D], for places in it, [C, L]."""
        return rows(self.params["items"], items_CL)


@dataclass(frozen=True)
class ServerView:
    """The server as one part sees it.

    Args:
        public: The public parameters.
        state: The part's own state; hooks return a new one and never change it in place.
        round: The number of the round and the clients in it.
        seed: The seed of the run.
        name: The name of the part, which its random streams depend on.
        model: The model of the method.
        objective: The objective of the method.
        catalogue: What the server and all clients know about the items.
        step: The exchange that is being prepared: "report" or "train".
        preview_step: Returns rows of a public table after a step of the server's optimiser with
            some update, without taking the step.
    """

    public: Fields
    state: FieldDict
    round: Round
    seed: int
    name: str
    model: Model
    objective: Objective
    catalogue: Catalogue
    step: str = "train"
    preview_step: StepPreview | None = None

    @cached_property
    def client_rng(self) -> Rng:
        """One random stream for each client of the round."""
        return Rng.of(self.seed, self.round.number, self.round.ids_C).fold(self.name)

    @cached_property
    def server_rng(self) -> Rng:
        """One random stream of the server, for this part and round."""
        return Rng.server(self.seed, self.round.number, self.name)
