"""The parts of aggregation: who shares a model, how uploads are combined, what the server does with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from covey.contract.views import Reads, ServerView
from covey.core.messages import Sent, Total, Upload
from covey.core.ragged import FieldDict, Fields


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
    reads_uploads: Reads = "total"

    def init_state(self, view: ServerView) -> FieldDict:
        return {}

    def send(self, view: ServerView) -> Sent:
        return Sent()

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        raise NotImplementedError


class Combine:
    """How the uploads of a group become one update, and one model where models were uploaded."""

    reads_uploads: Reads = "total"

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        raise NotImplementedError

    def tally(self, upload: Upload | Total, names: Sequence[str]) -> dict[str, int]:
        """What is worth counting over a run, such as rows that a rule had too few uploads for."""
        return {}


class ServerStep:
    """What the server does with an update; the drawer holds its optimiser state."""

    name: str = "server step"
    by_row: ClassVar[bool] = False  # whether what becomes of a row depends on that row alone

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        raise NotImplementedError
