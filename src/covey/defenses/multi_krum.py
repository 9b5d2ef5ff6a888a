"""Multi-Krum (Blanchard et al., NeurIPS 2017): the mean of the uploads that Krum likes best."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.views import Reads

from .krum import distances, neighbours, scores
from .rows import RowRule, Scale, assumed, minority


@dataclass(frozen=True)
class MultiKrum(RowRule):
    """The n - f lowest scores at once; or n - 2f, Krum being asked again for each of them without those before."""

    malicious: float = 0.1
    again: bool = False
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        minority("multi-krum", self.malicious)

    def enough(self, n: int) -> bool:
        f = assumed(self.malicious, n)
        return n >= 4 * f + 3 if self.again else neighbours(n, f) >= 1

    def choose(self, g_JnP: Tensor) -> Tensor:
        n = g_JnP.shape[1]
        f = assumed(self.malicious, n)
        return taken(g_JnP, f, n - 2 * f if self.again else n - f, self.again).mean(1)


def taken(g_JnP: Tensor, f: int, many: int, again: bool) -> Tensor:
    """The uploads that Krum chooses, [J, many, P]; of equals the first."""
    d_Jnn = distances(g_JnP)
    if again:
        at_Jm = _one_by_one(d_Jnn, f, many)
    else:
        at_Jm = scores(d_Jnn, neighbours(len(d_Jnn[0]), f)).argsort(dim=-1, stable=True)[:, :many]
    return g_JnP.gather(1, at_Jm[..., None].expand(-1, -1, g_JnP.shape[2]))


def _one_by_one(d_Jnn: Tensor, f: int, many: int) -> Tensor:
    d_Jnn, n = d_Jnn.clone(), d_Jnn.shape[1]
    gone_Jn, chosen = torch.zeros_like(d_Jnn[..., 0], dtype=torch.bool), []
    for left in range(n, n - many, -1):
        k = min(max(neighbours(left, f), 1), left - 1)
        best_J1 = scores(d_Jnn, k).masked_fill(gone_Jn, torch.inf).argmin(-1, keepdim=True)
        gone_Jn = gone_Jn.scatter(1, best_J1, True)
        d_Jnn = d_Jnn.masked_fill(gone_Jn[:, None], torch.inf)
        chosen.append(best_J1)
    return torch.cat(chosen, 1)
