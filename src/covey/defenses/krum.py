"""Krum: takes the one upload that is closest to its nearest neighbours.

Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .rows import MinorityRule

PART = 1 << 12  # numbers of each upload that are multiplied at once


@dataclass(frozen=True)
class Krum(MinorityRule):
    """The upload with the smallest sum of squared distances to its n - f - 2 nearest neighbours."""

    def enough(self, n: int) -> bool:
        return neighbours(n, self.assumed(n)) >= 1

    def choose(self, g_JnP: Tensor) -> Tensor:
        """The upload with the smallest score; of equals the first."""
        n = g_JnP.shape[1]
        score_Jn = scores(distances(g_JnP), neighbours(n, self.assumed(n)))
        return g_JnP[torch.arange(len(g_JnP), device=g_JnP.device), score_Jn.argmin(-1)]


def neighbours(n: int, f: int) -> int:
    """The number of nearest neighbours that Krum looks at."""
    return n - f - 2


def scores(d_Jnn: Tensor, k: int) -> Tensor:
    """Sum of squared distances to the k nearest others, [J, n]."""
    return d_Jnn.topk(k, dim=-1, largest=False, sorted=False).values.sum(-1)


def distances(g_JnP: Tensor) -> Tensor:
    """Squared distances between uploads, [J, n, n]; an upload's distance to itself is infinite.

    They are differences of inner products that are close to each other: in double precision.
    """
    J, n, _ = g_JnP.shape
    dot_Jnn = torch.zeros(J, n, n, dtype=torch.float64, device=g_JnP.device)
    for part_JnB in g_JnP.split(PART, -1):
        part_JnB = part_JnB.double()
        dot_Jnn.baddbmm_(part_JnB, part_JnB.mT)
    norm_Jn = dot_Jnn.diagonal(dim1=1, dim2=2)
    # The sum with the transpose makes the distances symmetric to the last bit.
    d_Jnn = norm_Jn[:, :, None] + norm_Jn[:, None] - (dot_Jnn + dot_Jnn.mT)
    d_Jnn.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    return d_Jnn.clamp_(min=0)
