"""Coordinate-wise median (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018)."""

from dataclasses import dataclass

from torch import Tensor

from covey.contract.views import Reads

from .rows import RowRule, Scale, ascending, middle


@dataclass(frozen=True)
class Median(RowRule):
    """Of one or two uploads it is their mean: no protection, and counted as such."""

    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def enough(self, n: int) -> bool:
        return n >= 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        return middle(ascending(g_JnP))
