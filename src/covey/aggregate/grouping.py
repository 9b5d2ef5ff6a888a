"""Which clients share a model: all of them, or none."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.contract.aggregation import Group, Grouping
from covey.contract.views import Reads, ServerView
from covey.core.messages import Total, Upload
from covey.core.ragged import FieldDict


@dataclass(frozen=True)
class Everyone(Grouping):
    name: str = "everyone"
    reads_uploads: Reads = "total"

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        return view.state, [Group(tuple(view.public))]


@dataclass(frozen=True)
class Nobody(Grouping):
    """Local training only: nothing is shared, so nothing is combined."""

    name: str = "nobody"
    reads_uploads: Reads = "total"

    def groups(self, view: ServerView, upload: Upload | Total) -> tuple[FieldDict, Sequence[Group]]:
        return view.state, []
