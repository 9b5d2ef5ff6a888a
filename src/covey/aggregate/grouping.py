"""Which clients share a model: all of them, or none."""

from collections.abc import Sequence
from dataclasses import dataclass

from covey.core import Answers, FieldDict
from covey.mechanism import Group, Grouping, ServerView


@dataclass(frozen=True)
class Everyone(Grouping):
    name: str = "everyone"

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        return view.state, [Group(tuple(view.public))]


@dataclass(frozen=True)
class Nobody(Grouping):
    """Local training only: nothing is shared, so nothing is combined."""

    name: str = "nobody"

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        return view.state, []
