"""Bulyan: Multi-Krum's uploads, averaged coordinate by coordinate near the median.

El Mhamdi et al., "The Hidden Vulnerability of Distributed Learning in Byzantium", ICML 2018.
"""

from dataclasses import dataclass

from torch import Tensor

from covey.core.errors import CoveyError

from .multi_krum import selected
from .rows import RowRule, ascending, assumed, near_middle


@dataclass(frozen=True)
class Bulyan(RowRule):
    """Of n - 2f uploads that Multi-Krum selects, the mean of the n - 4f values near the median."""

    malicious: float = 0.1
    again: bool = False  # Krum selects each upload anew, as published; far slower

    def __post_init__(self) -> None:
        if not 0 <= self.malicious < 0.25:
            raise CoveyError(
                f"bulyan: malicious = {self.malicious};"
                " it tolerates less than a quarter, 0 to under 0.25"
            )

    def enough(self, n: int) -> bool:
        return n >= 4 * assumed(self.malicious, n) + 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        n = g_JnP.shape[1]
        f = assumed(self.malicious, n)
        return near_middle(ascending(selected(g_JnP, f, n - 2 * f, self.again)), n - 4 * f)
