"""The Krum of Yuan et al. (Robust Federated Contrastive Recommender System, 2024), which is not Krum.

They describe it as the gradient of an item that is closest to the mean of all other clients' gradients of
this item. An attacker moves that mean as far as its upload is long, so one long upload is enough to have
the outermost of the honest ones taken.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.views import Reads

from .rows import RowRule, Scale


@dataclass(frozen=True)
class KrumMean(RowRule):
    """The distance to the mean of the others is n / (n - 1) times that to the mean of all: one pass."""

    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def enough(self, n: int) -> bool:
        return n >= 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        wide_JnP = g_JnP.double()
        apart_Jn = (wide_JnP - wide_JnP.mean(1, keepdim=True)).square_().sum(-1)
        return g_JnP[torch.arange(len(g_JnP), device=g_JnP.device), apart_Jn.argmin(-1)]
