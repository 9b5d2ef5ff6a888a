"""What a part of a method may see: a cohort of clients, or the server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import Tensor

from covey.core import Catalogue, FieldDict, Fields, Ragged, Rng, Round, Sent

from .examples import Batch
from .model import NO_HISTORY, History, Model, rows
from .objective import Objective

Reads = Literal["each", "total"]  # whether a server half needs single entries, or sums are enough
StepPreview = Callable[[str, Tensor, Tensor], Tensor]  # table, rows [T], update [T, D] -> [T, D]


@dataclass(frozen=True)
class TrainingData:
    """What a client may learn from; held-out items are not in here."""

    items: Ragged  # the training items of each client, oldest first
    avoid: Ragged  # items of each client that are never drawn as negatives, sorted and distinct

    def take(self, pick: Tensor) -> "TrainingData":
        """The data of some of the clients."""
        return TrainingData(self.items.take(pick), self.avoid.take(pick))


@dataclass(frozen=True)
class ClientView:
    """A cohort of C clients as one mechanism sees it; each row is a client that knows only itself.

    Before training, item tables in `params` are whole, [C or 1, I, D]; in `prepare` and `loss` they
    hold the local rows that `batch` names.
    """

    params: Fields  # by name, [C or 1, ...]; a leading 1 means shared
    data: TrainingData  # the clients' training data
    received: Sent  # what this mechanism's server half sent
    rng: Rng  # one random stream per client, for this mechanism and round
    model: Model  # the model of the method
    objective: Objective  # the objective of the method
    catalogue: Catalogue  # what the server and all clients know about the items
    batch: Batch | None = None  # the examples of the current block; None before training
    objective_state: Fields = field(default_factory=dict)  # of the objective, for this block
    prepared: Fields = field(default_factory=dict)  # what this mechanism's `prepare` returned
    step: int = 0  # the number of the local step, in `loss`
    valid: Ragged | None = None  # in `report`, the validation items, to choose between models

    def user(self) -> Tensor:
        """User vectors, [C, D]: in training those of the current step, before it of whole lists."""
        if self.batch is None:
            return self.model.user(self.params, History.of(self.data.items), self.rng, False)
        known, state = NO_HISTORY, self.objective_state
        if "user" in state:
            return state["user"]
        if "sequence" in state:
            known = History(state["sequence"], state["mask"])
        return self.model.user(self.params, known, self.rng, False)

    def objective_loss(self, params: Fields | None = None, u: Tensor | None = None) -> Tensor:
        """The objective's loss, [C], for the current batch.

        `params` and the user vectors `u`, [C, D], replace the current ones and those of the model.
        """
        assert self.batch is not None
        params = self.params if params is None else params
        state, rng = self.objective_state, self.rng
        return self.objective.loss(self.model, params, self.batch, state, rng, u)

    def rows(self, items_CL: Tensor) -> Tensor:
        """Rows of the item table, [C, L, D], for places in it, [C, L]."""
        return rows(self.params["items"], items_CL)


@dataclass(frozen=True)
class ServerView:
    """The server as one part sees it."""

    public: Fields  # the public parameters
    state: FieldDict  # the part's own state; hooks return a new one and never change it in place
    round: Round  # the number of the round and the clients in it
    seed: int  # the seed of the run
    name: str  # the name of the part, which its random streams depend on
    model: Model  # the model of the method
    objective: Objective  # the objective of the method
    catalogue: Catalogue  # what the server and all clients know about the items
    step: str = "train"  # the exchange that is being prepared: "report" or "train"
    preview_step: StepPreview | None = None  # rows after a server step, which is not taken

    @cached_property
    def client_rng(self) -> Rng:
        """One random stream for each client of the round."""
        return Rng.of(self.seed, self.round.number, self.round.ids_C).fold(self.name)

    @cached_property
    def server_rng(self) -> Rng:
        """One random stream of the server, for this part and round."""
        return Rng.server(self.seed, self.round.number, self.name)
