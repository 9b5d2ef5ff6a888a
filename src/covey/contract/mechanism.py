"""A mechanism is one idea of one paper: a frozen dataclass of hyperparameters with hooks.

Hooks are pure. A client hook sees a `ClientView`, a server hook a `ServerView`, and nothing
else, so no mechanism can reach another's state, another client, or across the wire.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from covey.contract.views import ClientView, Sees, ServerView
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import Drawer, Fields

from .examples import Examples
from .ledger import Disclosure
from .model import Model


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
