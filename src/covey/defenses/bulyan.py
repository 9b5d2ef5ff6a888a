"""Bulyan (El Mhamdi et al., The Hidden Vulnerability of Distributed Learning in Byzantium, ICML 2018)."""

from dataclasses import dataclass

from torch import Tensor

from covey.contract.views import Reads
from covey.core.errors import CoveyError

from .multi_krum import taken
from .rows import RowRule, Scale, ascending, assumed, near_middle


@dataclass(frozen=True)
class Bulyan(RowRule):
    """Multi-Krum takes n - 2f uploads; of these each coordinate is the mean of the n - 4f nearest to the median."""

    malicious: float = 0.1
    again: bool = False  # Krum is asked again for each upload, as published; far slower
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        if not 0 <= self.malicious < 0.25:
            raise CoveyError(
                f"bulyan: malicious = {self.malicious}; it stands less than a quarter, 0 to under 0.25"
            )

    def enough(self, n: int) -> bool:
        return n >= 4 * assumed(self.malicious, n) + 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        n = g_JnP.shape[1]
        f = assumed(self.malicious, n)
        return near_middle(ascending(taken(g_JnP, f, n - 2 * f, self.again)), n - 4 * f)
