"""The rule that Yuan et al. call Krum, which is not Krum.

"Robust Federated Contrastive Recommender System", 2024, describes it as the gradient of an item
that is closest to the mean of all other clients' gradients of this item. An attacker moves that
mean as far as its upload is long, so one long upload makes the rule take the outermost honest one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .rows import RowRule


@dataclass(frozen=True)
class KrumMean(RowRule):
    """Takes the upload closest to the mean of all, which is that closest to the mean of others."""

    def enough(self, n: int) -> bool:
        return n >= 3

    def choose(self, g_JnP: Tensor) -> Tensor:
        wide_JnP = g_JnP.double()
        apart_Jn = (wide_JnP - wide_JnP.mean(1, keepdim=True)).square_().sum(-1)
        return g_JnP[torch.arange(len(g_JnP), device=g_JnP.device), apart_Jn.argmin(-1)]
