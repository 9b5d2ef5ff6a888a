"""Bulyan: Multi-Krum's uploads, averaged coordinate by coordinate near the median.

El Mhamdi et al., "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML 2018.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from .multi_krum import selected
from .rows import MinorityRule, ascending, near_middle


@dataclass(frozen=True)
class Bulyan(MinorityRule):
    """Of n - 2f uploads that Multi-Krum selects, the mean of the n - 4f values near the median."""

    tolerated: ClassVar[float] = 0.25
    again: bool = False  # Krum selects in turn, as published; far slower

    def enough(self, n: int) -> bool:
        return n >= 4 * self.assumed(n) + 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        n = g_JnP.shape[1]
        f = self.assumed(n)
        return near_middle(ascending(selected(g_JnP, f, n - 2 * f, self.again)), n - 4 * f)
