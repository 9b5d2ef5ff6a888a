"""Cross-entropy over all items in bounded memory: logits of a few positions at a time, computed again in the backward.

Shape suffixes: G = item tables (one of all clients, or one of each), P = positions, I = items.
"""

from typing import Any

import torch
from torch import Tensor

from .base import rows

CPU_LOGITS = 1 << 22  # of one table at a time
CUDA_LOGITS = 1 << 27


def catalogue_nll(u_CPD: Tensor, v_GID: Tensor, target_CP: Tensor, at_once: int = 0) -> Tensor:
    """-log softmax of the target among all items by inner product, [C, P]; tables of each client, or one for all."""
    at_once = at_once or (CPU_LOGITS if u_CPD.device.type == "cpu" else CUDA_LOGITS)
    if len(v_GID) == len(u_CPD):
        return torch.as_tensor(_Nll.apply(u_CPD, v_GID, target_CP, at_once))
    flat_1P = torch.as_tensor(_Nll.apply(u_CPD.flatten(0, 1)[None], v_GID, target_CP.reshape(1, -1), at_once))
    return flat_1P.view_as(target_CP)


class _Nll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u_GPD: Tensor, v_GID: Tensor, target_GP: Tensor, at_once: int) -> Tensor:
        ctx.step = max(1, at_once // v_GID.shape[1])
        lse_GP = torch.cat([(part @ v_GID.mT).logsumexp(2) for part in u_GPD.split(ctx.step, 1)], 1)
        ctx.save_for_backward(u_GPD, v_GID, target_GP, lse_GP)
        return lse_GP - (u_GPD * rows(v_GID, target_GP)).sum(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """d nll / d logit = softmax - 1 at the target."""
        step, (u_GPD, v_GID, target_GP, lse_GP) = ctx.step, ctx.saved_tensors
        du_parts, dv_GID = [], torch.zeros_like(v_GID)
        for u, at, lse, grad in zip(*(x.split(step, 1) for x in (u_GPD, target_GP, lse_GP, grads[0])), strict=True):
            p_GPI = torch.baddbmm(-lse[..., None], u, v_GID.mT).exp_()
            p_GPI.scatter_add_(2, at[..., None], -torch.ones_like(lse)[..., None])
            p_GPI *= grad[..., None]
            du_parts.append(p_GPI @ v_GID)
            dv_GID.baddbmm_(p_GPI.mT, u)
        return torch.cat(du_parts, 1), dv_GID, None, None
