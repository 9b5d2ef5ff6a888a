"""A mechanism is one idea of one paper: a frozen dataclass of hyperparameters with hooks.

Hooks are pure. A client hook sees a `ClientView`, a server hook a `ServerView`, and nothing
else, so no mechanism can reach another's state, another client, or across the wire.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from .core import Catalogue, Drawer, Fields, Ragged, Round, Sent, Total, Upload
from .examples import Batch, Examples
from .ledger import Disclosure
from .models.base import History, Model, rows
from .objectives import NO_HISTORY, Objective
from .rng import Rng


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


class Mechanism:
    """Every hook is optional; `name` is the mechanism's drawer in messages, memory and config."""

    name: str = "mechanism"
    listens: str = ""  # another part whose server half sends what this client half reads
    asks: frozenset[str] = frozenset()  # exchanges beyond training: "enrol", "report"
    hears: Sees = "each"  # whether reports may be summed before the server sees them
    whole_table: bool = False  # its loss moves every item row, so clients train whole tables
    needs: tuple[str, ...] = ()  # private parameters that the model must have

    # on the client
    def enrol(self, view: ClientView) -> Drawer:
        """Sent once, when the client joins."""
        return {}

    def report(self, view: ClientView) -> Drawer:
        """Sent before training."""
        return {}

    def releases(self) -> int:
        """How many reports of a client are new; then it repeats the last, which it keeps. 0: all are."""
        return 0

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        return examples

    def common(self, view: ClientView) -> Sent:
        """Before training, of all clients at hand: what several would compute alike, so that it is done once.

        Joins `view.sent`. It may change nothing but the time that the loss takes.
        """
        return Sent()

    def prepare(self, view: ClientView) -> Fields:
        """Once per participation: views, masks; [C, ...], handed back as `view.prepared`."""
        return {}

    def loss(self, view: ClientView) -> Tensor | None:
        """[C], added to the objective's."""
        return None

    def seal(self, view: ClientView, upload: Upload) -> Upload:
        """Before it leaves: clip, noise, pseudo items."""
        return upload

    def base(self, params: Fields) -> tuple[Model, Fields] | None:
        """Another model and its parameters, of what was sent: its scores are added wherever a client ranks."""
        return None

    def floats(self, n_rows: int) -> int:
        """Numbers per client that the loss holds beyond its rows, for the memory plan."""
        return 0

    def pairs(self, n_rows: int) -> int:
        """Pairs of rows that the loss of a client compares in a step, for the plan on a GPU."""
        return 0

    # on the server; those returning a Drawer return the new one
    def init(self, view: ServerView, enrolment: Upload | None) -> Drawer:
        return {}

    def admit(self, view: ServerView, enrolment: Upload | None) -> Drawer:
        """Late joiners; `view.round.ids_C` are theirs."""
        return view.memory

    def begin(self, view: ServerView) -> Drawer:
        return view.memory

    def reporters(self, view: ServerView, everyone: Tensor) -> Tensor | None:
        """Who reports in this round; None: the round's cohort."""
        return None

    def hear(self, view: ServerView, reports: Upload | Total) -> tuple[Drawer, Fields]:
        """The new drawer, and public parameters that the reports change."""
        return view.memory, {}

    def send(self, view: ServerView) -> Sent:
        return Sent()

    def filter(self, view: ServerView, upload: Upload) -> Upload:
        return upload

    def regularise(self, view: ServerView, update: Fields) -> Fields:
        """The combined update, before the server step."""
        return update

    def polish(self, view: ServerView, model: Fields) -> tuple[Drawer, Fields]:
        """Any model about to be handed out."""
        return view.memory, model

    def finish(self, view: ServerView) -> Drawer:
        return view.memory

    def discloses(self) -> tuple[Disclosure, ...]:
        return ()

    def covers(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        """What a field of training discloses once it is sealed, and what it still tells beside its content."""
        return (disclosed,)

    @property
    def draws_entropy(self) -> bool:
        """Whether its noise is the device's own: asked the same again, it would say something else."""
        return getattr(self, "noise", "simulated") in ("device", "opendp")

    def overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(Mechanism, hook)


@dataclass(frozen=True)
class Group:
    """Clients that share a model for some parameters. `rows` None: everyone; public: published."""

    names: tuple[str, ...]
    rows: Tensor | None = None
    public: bool = True
    weight: Tensor | None = None  # how much each of them counts; None: as it says itself


class Grouping:
    """Who shares a model. Single numbers in its drawer under `tell/` are written down with each round."""

    name: str = "grouping"
    sees: Sees = "total"

    def init(self, view: ServerView) -> Drawer:
        return {}

    def send(self, view: ServerView) -> Sent:
        return Sent()

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[Drawer, Sequence[Group]]:
        raise NotImplementedError


class Combine:
    """How the uploads of a group become one update, and one model where models were uploaded."""

    sees: Sees = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        raise NotImplementedError

    def tally(self, upload: Upload | Total, names: Sequence[str]) -> dict[str, int]:
        """What is worth counting over a run, such as rows that a rule had too few uploads for."""
        return {}


class ServerStep:
    """What the server does with an update; the drawer holds its optimiser state."""

    name: str = "server step"
    by_row: ClassVar[bool] = False  # whether what becomes of a row depends on that row alone

    def step(self, memory: Drawer, params: Fields, update: Fields) -> tuple[Drawer, Fields]:
        raise NotImplementedError


def client_views(mechanisms: Sequence[Mechanism], view: ClientView, extra: dict[str, Sent]) -> list[ClientView]:
    """The same cohort as each mechanism sees it: its own drawer, its own random stream."""
    return [replace(view, sent=extra.get(m.listens or m.name, Sent()), rng=view.rng.fold(m.name)) for m in mechanisms]


def unique_names(parts: Sequence[Any]) -> list[str]:
    names = [p.name for p in parts]
    if len(names) != len(set(names)):
        raise ValueError(f"two mechanisms share a name: {sorted(names)}; give each its own `name`")
    return names


def no_clients() -> Tensor:
    return torch.zeros(0, dtype=torch.long)
