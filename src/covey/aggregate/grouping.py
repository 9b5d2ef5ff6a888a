"""Who shares a model: everyone."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.contract.aggregation import Group, Grouping
from covey.contract.views import Sees, ServerView
from covey.core.messages import Total, Upload
from covey.core.ragged import Drawer


@dataclass(frozen=True)
class Everyone(Grouping):
    name: str = "everyone"
    sees: Sees = "total"

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[Drawer, Sequence[Group]]:
        return view.memory, [Group(tuple(view.public))]


@dataclass(frozen=True)
class Nobody(Grouping):
    """Purely local training: nothing is shared, so nothing is combined."""

    name: str = "nobody"
    sees: Sees = "total"

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[Drawer, Sequence[Group]]:
        return view.memory, []
