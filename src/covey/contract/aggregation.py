"""The three steps of aggregation: grouping clients, combining uploads, and the server's step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from covey.contract.views import Reads, ServerView
from covey.core import Answers, FieldDict, Fields, Sent


@dataclass(frozen=True)
class Group:
    """Clients that share some parameters."""

    names: tuple[str, ...]  # the shared parameters
    rows: Tensor | None = None  # the places of the clients in the upload; None for all of them
    public: bool = True  # whether the result is the new public model; else only they receive it
    weight: Tensor | None = None  # the weight of each client, in place of its own; None for its own
    prefix: str = ""  # of the names of a further public model, which begins as the usual one


class Grouping:
    """Decides which clients share a model.

    Single numbers in its state under names that begin with `tell/` are metrics: they are logged.
    """

    name: str = "grouping"
    reads_uploads: Reads = "total"

    def init_state(self, view: ServerView) -> FieldDict:
        """Returns the first state."""
        return {}

    def send(self, view: ServerView) -> Sent:
        """Returns what goes to the clients before training, in addition to the public model."""
        return Sent()

    def groups(self, view: ServerView, upload: Answers) -> tuple[FieldDict, Sequence[Group]]:
        """Returns the new state and the groups; a total has the single group of all clients."""
        raise NotImplementedError


class Combine:
    """Aggregates the uploads of a group into one update, and into one model if models are sent."""

    reads_uploads: Reads = "total"

    def combine(self, upload: Answers, names: Sequence[str]) -> tuple[Fields, Fields]:
        """Returns the update and the uploaded model, by parameter, each in the parameter's shape.

        Args:
            upload: The uploads of the group, or their sum where `reads_uploads` is "total".
            names: The parameters to aggregate.
        """
        raise NotImplementedError

    def tally(self, upload: Answers, names: Sequence[str]) -> dict[str, int]:
        """Returns counts that are added up over a run, such as rows with too few uploads."""
        return {}


class ServerStep:
    """Applies an aggregated update to the public parameters; its state is that of the optimiser."""

    name: str = "server step"
    by_row: ClassVar[bool] = False  # whether the new value of a row depends on that row alone

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        """Returns the new state and the new parameters, for the state `memory` and one update."""
        raise NotImplementedError
