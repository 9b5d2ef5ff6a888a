"""What a part may see: a cohort of clients, or the server."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import Tensor

from covey.core.messages import Catalogue, Round, Sent
from covey.core.ragged import Drawer, Fields, Ragged
from covey.core.rng import Rng

from .examples import Batch
from .model import NO_HISTORY, History, Model, rows
from .objective import Objective


@dataclass(frozen=True)
class TrainingData:
    """What a client may learn from; held-out items are not in here."""

    items: Ragged  # in the order of time
    avoid: Ragged  # sorted, distinct: never drawn as negatives

    def take(self, pick: Tensor) -> "TrainingData":
        return TrainingData(self.items.take(pick), self.avoid.take(pick))


@dataclass(frozen=True)
class ClientView:
    """A cohort of clients as one mechanism sees it, each row a client that knows only itself.

    Before training `params` holds whole item tables (leading 1 where shared); inside `prepare`
    and `loss` it holds the local rows that `batch` names.
    """

    params: Fields
    data: TrainingData
    sent: Sent  # what this mechanism's server half sent
    rng: Rng
    model: Model
    objective: Objective
    catalogue: Catalogue
    batch: Batch | None = None
    ready: Fields = field(default_factory=dict)  # the objective's tensors of this block
    prepared: Fields = field(default_factory=dict)  # what this mechanism's `prepare` returned
    step: int = 0  # of local training, in `loss`
    valid: Ragged | None = None  # in `report`: what the client holds back to choose between models by

    def user(self) -> Tensor:
        """The users' vectors: in training those of the current step, else from the whole list."""
        if self.batch is not None:
            known = History(self.ready["sequence"], self.ready["mask"]) if "sequence" in self.ready else NO_HISTORY
            return self.model.user(self.params, known, self.rng, False)
        return self.model.user(self.params, History.of(self.data.items), self.rng, False)

    def recommend(self, params: Fields | None = None, u: Tensor | None = None) -> Tensor:
        """The objective's loss, [C]; of other parameters or user vectors where given."""
        assert self.batch is not None
        params = self.params if params is None else params
        return self.objective.loss(self.model, params, self.batch, self.ready, self.rng, u)

    def rows(self, items_CL: Tensor) -> Tensor:
        return rows(self.params["items"], items_CL)


Tried = Callable[[str, Tensor, Tensor], Tensor]  # a table, some of its rows, their update -> these rows after a step


@dataclass(frozen=True)
class ServerView:
    public: Fields
    memory: Drawer  # this mechanism's drawer
    round: Round
    seed: int
    name: str  # of the mechanism; its streams are its own
    model: Model
    objective: Objective
    catalogue: Catalogue
    step: str = "train"  # which exchange is being prepared
    tried: Tried | None = None  # what the server's own step would make of an update, without taking it

    @cached_property
    def rng(self) -> Rng:
        """One stream per client of the round."""
        return Rng.of(self.seed, self.round.number, self.round.ids_C).fold(self.name)

    @cached_property
    def dice(self) -> Rng:
        """One stream of the server's own."""
        return Rng.server(self.seed, self.round.number, self.name)


Sees = Literal["each", "total"]
