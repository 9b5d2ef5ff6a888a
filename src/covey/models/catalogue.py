"""Cross-entropy over all items in bounded memory, from one tile of logits at a time.

The backward pass computes the logits again. Shape suffixes: G = item tables (one that all clients
share, or one of each), P = positions, I = items.
"""

from typing import Any

import torch
from torch import Tensor

from covey.contract.model import rows

Tile = tuple[int, int]
CPU_TILE = (256, 2048)  # positions and items at a time, so that their logits fit the cache
CUDA_LOGITS = 1 << 27  # of one table at a time


def catalogue_nll(
    u_CPD: Tensor, v_GID: Tensor, target_CP: Tensor, tile: Tile | None = None
) -> Tensor:
    """Returns -log softmax of the targets among all items by inner products, [C, P].

    Each client has an item table, or all share one, [1, I, D]. `tile` is how many positions and
    items are computed at a time; None: by the device.
    """
    many = v_GID.shape[1]
    tile = tile or (CPU_TILE if u_CPD.device.type == "cpu" else (max(1, CUDA_LOGITS // many), many))
    if len(v_GID) == len(u_CPD):
        return torch.as_tensor(_Nll.apply(u_CPD, v_GID, target_CP, tile))
    flat_1P = _Nll.apply(u_CPD.flatten(0, 1)[None], v_GID, target_CP.reshape(1, -1), tile)
    return torch.as_tensor(flat_1P).view_as(target_CP)


class _Nll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u_GPD: Tensor, v_GID: Tensor, target_GP: Tensor, tile: Tile) -> Tensor:
        ctx.tile = high, wide = tile
        lse_GP = torch.cat([_log_sum(part, v_GID, wide) for part in u_GPD.split(high, 1)], 1)
        ctx.save_for_backward(u_GPD, v_GID, target_GP, lse_GP)
        return lse_GP - (u_GPD * rows(v_GID, target_GP)).sum(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """d nll / d logit = softmax - 1 at the target."""
        (high, wide), (u_GPD, v_GID, target_GP, lse_GP) = ctx.tile, ctx.saved_tensors
        du_GPD, dv_GID = torch.zeros_like(u_GPD), torch.zeros_like(v_GID)
        parts = (x.split(high, 1) for x in (u_GPD, du_GPD, target_GP, lse_GP, grads[0]))
        for u, du, target, lse, grad in zip(*parts, strict=True):
            scaled = u * grad[..., None]
            for first in range(0, v_GID.shape[1], wide):
                v = v_GID[:, first : first + wide]
                p = torch.bmm(u, v.mT).sub_(lse[..., None]).exp_()
                at, last = target - first, v.shape[1] - 1
                here = ((at >= 0) & (at <= last)).to(p)
                p.scatter_add_(2, at.clamp(0, last)[..., None], -here[..., None])
                du.baddbmm_(p, v)
                dv_GID[:, first : first + wide].baddbmm_(p.mT, scaled)
            du *= grad[..., None]
        return du_GPD, dv_GID, None, None


def _log_sum(u_GPD: Tensor, v_GID: Tensor, wide: int) -> Tensor:
    """log sum exp of the logits, [G, P], one tile after the other."""
    most_GP = u_GPD.new_full(u_GPD.shape[:2], -torch.inf)
    sum_GP = torch.zeros_like(most_GP)
    for v in v_GID.split(wide, 1):
        s = torch.bmm(u_GPD, v.mT)
        now_GP = torch.maximum(most_GP, s.amax(2))
        sum_GP = sum_GP * (most_GP - now_GP).exp() + s.sub_(now_GP[..., None]).exp_().sum(2)
        most_GP = now_GP
    return sum_GP.log() + most_GP
