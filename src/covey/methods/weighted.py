"""Bases of mechanisms that add a loss times `weight`; a weight of 0 leaves the loss out."""

from covey.contract.mechanism import Mechanism
from covey.core.errors import CoveyError


class WeightedLoss(Mechanism):
    """A mechanism whose loss is multiplied by `weight`, an option of the subclass."""

    weight: float

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise CoveyError(f"{self.name}: weight = {self.weight}; it may not be negative")

    def implements(self, hook: str) -> bool:
        """Without weight there is no loss, and clients train as without the mechanism."""
        return super().implements(hook) and (self.weight > 0 or hook not in ("loss", "precompute"))


class WholeTableLoss(WeightedLoss):
    """A weighted loss that moves every item row; without weight only touched rows are trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "whole_table", self.weight > 0)

    def extra_floats(self, n_rows: int) -> int:
        """About four tables of rows of 64 numbers: the gradient of the loss and its inputs."""
        return 256 * n_rows if self.weight else 0
