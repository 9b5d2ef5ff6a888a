"""Trimmed mean (Yin et al., Byzantine-Robust Distributed Learning, ICML 2018), coordinate by coordinate."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from covey.contract.views import Reads

from .rows import RowRule, Scale, ascending, assumed, minority, near_middle


@dataclass(frozen=True)
class TrimmedMean(RowRule):
    """`malicious` is the share of attackers that the server assumes among any n uploads: f = floor(share n)."""

    malicious: float = 0.1
    keep: Literal["inner", "near"] = (
        "inner"  # without the max(1, f) at each end; or the n - f nearest to the median
    )
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        minority("trimmed mean", self.malicious)

    def enough(self, n: int) -> bool:
        return n >= 3 and n > 2 * self._cut(n)

    def choose(self, g_JnP: Tensor) -> Tensor:
        n, sorted_JPn = g_JnP.shape[1], ascending(g_JnP)
        if self.keep == "near":
            return near_middle(sorted_JPn, n - assumed(self.malicious, n))
        return sorted_JPn[..., self._cut(n) : n - self._cut(n)].mean(-1)

    def _cut(self, n: int) -> int:
        """b: values dropped at each end."""
        return max(1, assumed(self.malicious, n)) if self.keep == "inner" else 0
