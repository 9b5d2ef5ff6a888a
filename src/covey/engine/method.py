"""A method of federated recommendation: a model, an objective and the parts that change them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from covey.aggregate.combine import ItemMean
from covey.aggregate.grouping import Everyone
from covey.aggregate.step import Add
from covey.contract.aggregation import Combine, Grouping, ServerStep
from covey.contract.fleet import Fleet
from covey.contract.mechanism import Mechanism, unique_names
from covey.contract.model import Model
from covey.contract.objective import Objective
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.solvers import Local

SINGLE = {
    "enrol": "what single clients say when they join",
    "report": "single reports",
    "train": "single uploads",
}


REMEDY = {
    step: f"leave it out, or let them be read by fleet.clear = ['{step}']"
    for step in ("enrol", "report")
}


@dataclass(frozen=True)
class Method:
    """A method of federated recommendation, composed of parts."""

    model: Model
    objective: Objective
    catalogue: Catalogue
    solver: Local | None = None
    mechanisms: tuple[Mechanism, ...] = ()
    grouping: Grouping = field(default_factory=Everyone)
    combine: Combine = field(default_factory=ItemMean)
    server_step: ServerStep = field(default_factory=Add)
    weighting: Literal["equal", "examples"] = "equal"
    seed: int = 0

    def __post_init__(self) -> None:
        names = unique_names((*self.mechanisms, self.grouping, self.server_step))
        for m in self.mechanisms:
            if m.listens and m.listens not in names:
                raise CoveyError(
                    f"{m.name!r} listens to {m.listens!r}, which is not here; add it or leave that out"
                )

    def has_exchange(self, step: str) -> bool:
        """Whether a mechanism needs this exchange."""
        return any(step in m.exchanges for m in self.mechanisms)

    @property
    def folds(self) -> bool:
        """Whether the server can live with sums of uploads."""
        seen = self.combine.reads_uploads == "total" and self.grouping.reads_uploads == "total"
        return seen and not any(m.implements("filter_uploads") for m in self.mechanisms)

    @property
    def hears_sums(self) -> bool:
        return all(m.reads_reports == "total" for m in self.mechanisms if "report" in m.exchanges)

    def singles(self) -> set[tuple[str, str]]:
        """Parts that read what single clients say, and the steps in which they do."""
        found = (
            {(type(self.combine).__name__, "train")}
            if self.combine.reads_uploads != "total"
            else set()
        )
        found |= (
            {(self.grouping.name, "train")} if self.grouping.reads_uploads != "total" else set()
        )
        found |= {(m.name, "train") for m in self.mechanisms if m.implements("filter_uploads")}
        found |= {
            (m.name, "report")
            for m in self.mechanisms
            if "report" in m.exchanges and m.reads_reports != "total"
        }
        return found | {(m.name, "enrol") for m in self.mechanisms if "enrol" in m.exchanges}

    def check(self, fleet: Fleet) -> None:
        for part, step in sorted(self.singles()):
            if step in fleet.hides:
                raise CoveyError(
                    f"{part!r} reads {SINGLE[step]}, which secure aggregation hides; {REMEDY[step]}"
                )


def parts(method: Method) -> Sequence[object]:
    return (*method.mechanisms, method.grouping, method.combine, method.server_step)
