"""Multi-Krum: averages the uploads that Krum scores best (Blanchard et al., NeurIPS 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .krum import distances, neighbours, scores
from .rows import MinorityRule


@dataclass(frozen=True)
class MultiKrum(MinorityRule):
    """The mean of the n - f uploads with the lowest scores, or of n - 2f selected in turn."""

    again: bool = False  # Krum selects in turn, each time without those selected before

    def enough(self, n: int) -> bool:
        f = self.assumed(n)
        return n >= 4 * f + 3 if self.again else neighbours(n, f) >= 1

    def choose(self, g_JnP: Tensor) -> Tensor:
        n = g_JnP.shape[1]
        f = self.assumed(n)
        return selected(g_JnP, f, n - 2 * f if self.again else n - f, self.again).mean(1)


def selected(g_JnP: Tensor, f: int, many: int, again: bool) -> Tensor:
    """The `many` uploads that Krum selects, [J, many, P]; of equal scores the first ones.

    `f` uploads are assumed to be malicious. If `again`, scores are computed after each selection.
    """
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
