"""Krum (Blanchard et al., NeurIPS 2017): the one upload that is nearest to its nearest neighbours."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.views import Reads

from .rows import RowRule, Scale, assumed, minority

PART = 1 << 12  # numbers of each upload that are multiplied at once


@dataclass(frozen=True)
class Krum(RowRule):
    """`malicious` is the share of attackers that the server assumes among any n uploads: f = floor(share n)."""

    malicious: float = 0.1
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        minority("krum", self.malicious)

    def enough(self, n: int) -> bool:
        return neighbours(n, assumed(self.malicious, n)) >= 1

    def choose(self, g_JnP: Tensor) -> Tensor:
        """The upload with the smallest score; of equals the first."""
        n = g_JnP.shape[1]
        score_Jn = scores(distances(g_JnP), neighbours(n, assumed(self.malicious, n)))
        return g_JnP[torch.arange(len(g_JnP), device=g_JnP.device), score_Jn.argmin(-1)]


def neighbours(n: int, f: int) -> int:
    return n - f - 2


def scores(d_Jnn: Tensor, k: int) -> Tensor:
    """Sum of squared distances to the k nearest others, [J, n]."""
    return d_Jnn.topk(k, dim=-1, largest=False, sorted=False).values.sum(-1)


def distances(g_JnP: Tensor) -> Tensor:
    """Squared distances between uploads, infinite to oneself, [J, n, n].

    From inner products, which need double precision: what is left of their difference is small.
    """
    J, n, _ = g_JnP.shape
    dot_Jnn = torch.zeros(J, n, n, dtype=torch.float64, device=g_JnP.device)
    for part_JnB in g_JnP.split(PART, -1):
        part_JnB = part_JnB.double()
        dot_Jnn.baddbmm_(part_JnB, part_JnB.mT)
    norm_Jn = dot_Jnn.diagonal(dim1=1, dim2=2)
    d_Jnn = (
        norm_Jn[:, :, None] + norm_Jn[:, None] - (dot_Jnn + dot_Jnn.mT)
    )  # the same bits both ways
    d_Jnn.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    return d_Jnn.clamp_(min=0)
