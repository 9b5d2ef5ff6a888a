"""The coordinate-wise median (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018)."""

from dataclasses import dataclass

from torch import Tensor

from .rows import RowRule, ascending, middle


@dataclass(frozen=True)
class Median(RowRule):
    """The median of three or more uploads; of fewer the mean, which protects against nothing."""

    def enough(self, n: int) -> bool:
        return n >= 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        return middle(ascending(g_JnP))
