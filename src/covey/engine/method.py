"""A method of federated recommendation: a model, an objective and the parts that change them."""

from dataclasses import dataclass, field
from typing import Literal

from covey.aggregate.combine import ItemMean
from covey.aggregate.grouping import Everyone
from covey.aggregate.step import Add
from covey.contract.fleet import Fleet
from covey.contract.mechanism import Mechanism, unique_names
from covey.core import Catalogue, CoveyError
from covey.mechanism import Combine, Grouping, Model, Objective, ServerStep
from covey.solvers import Local

# By exchange: what a part reads there from single clients, and what to do where that is hidden.
CLEAR = "leave it out, or let them be read by fleet.clear = "
READ_AND_REMEDY = {
    "enrol": ("what single clients send when they join", f"{CLEAR}['enrol']"),
    "report": ("single reports", f"{CLEAR}['report']"),
    "train": ("single uploads", "leave it out, or use a linear combine"),
}


@dataclass(frozen=True)
class Method:
    """A method of federated recommendation, composed of parts."""

    model: Model  # scores items for users, and says which parameters are shared, kept or uploaded
    objective: Objective  # the loss that clients train with
    catalogue: Catalogue  # what all parties know about the items
    solver: Local | None = None  # how clients train; None for methods that only exchange reports
    mechanisms: tuple[Mechanism, ...] = ()  # ideas that change a round, in the order of their hooks
    grouping: Grouping = field(default_factory=Everyone)  # which clients share a model
    combine: Combine = field(default_factory=ItemMean)  # how the uploads of a group become one
    server_step: ServerStep = field(default_factory=Add)  # the server's optimiser
    weighting: Literal["equal", "examples"] = "equal"  # how clients weigh in an average
    seed: int = 0  # of the run

    def __post_init__(self) -> None:
        names = unique_names((*self.mechanisms, self.grouping, self.server_step))
        for m in self.mechanisms:
            if m.listens and m.listens not in names:
                wrong = f"{m.name!r} listens to {m.listens!r}, which is not here"
                raise CoveyError(f"{wrong}; add it or leave that out")

    def has_exchange(self, step: str) -> bool:
        """Whether a mechanism needs this exchange."""
        return any(step in m.exchanges for m in self.mechanisms)

    def folds(self, step: str) -> bool:
        """Whether the server needs only sums of what clients answer in this exchange."""
        return all(read != step for _, read in self.single_readers())

    def single_readers(self) -> set[tuple[str, str]]:
        """The parts that read messages of single clients, each with the exchange of these."""
        hooks = ("filter_uploads", "receive_uploads")
        names = {m.name for m in self.mechanisms if any(map(m.implements, hooks))}
        named = ((self.combine, type(self.combine).__name__), (self.grouping, self.grouping.name))
        names |= {name for part, name in named if part.reads_uploads != "total"}
        found = {(name, "train") for name in names}
        for m in self.mechanisms:
            if "report" in m.exchanges and m.reads_reports != "total":
                found.add((m.name, "report"))
            if "enrol" in m.exchanges:
                found.add((m.name, "enrol"))
        return found

    def check(self, fleet: Fleet) -> None:
        """Refuses a fleet that hides what a part reads."""
        for part, step in sorted(self.single_readers()):
            if step in fleet.hides:
                read, remedy = READ_AND_REMEDY[step]
                raise CoveyError(f"{part!r} reads {read}, which secure aggregation hides; {remedy}")
