"""The coordinate-wise trimmed mean.

Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from .rows import MinorityRule, ascending, near_middle


@dataclass(frozen=True)
class TrimmedMean(MinorityRule):
    """The mean of a coordinate without its extreme values, f of n uploads being assumed malicious.

    "inner" drops max(1, f) values at each end; "near" keeps the n - f values nearest to the median.
    """

    keep: Literal["inner", "near"] = "inner"

    def enough(self, n: int) -> bool:
        return n >= 3 and n > 2 * self._cut(n)

    def choose(self, g_JnP: Tensor) -> Tensor:
        n, sorted_JPn = g_JnP.shape[1], ascending(g_JnP)
        if self.keep == "near":
            return near_middle(sorted_JPn, n - self.assumed(n))
        return sorted_JPn[..., self._cut(n) : n - self._cut(n)].mean(-1)

    def _cut(self, n: int) -> int:
        """b: how many values are dropped at each end."""
        return max(1, self.assumed(n)) if self.keep == "inner" else 0
