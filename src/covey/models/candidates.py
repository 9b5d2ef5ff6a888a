"""Softmax of a target among the candidates of its position and candidates that all positions share.

The scores of a whole local table are given, but only those of the candidates are used: logarithms
and exponentials of all of them would cost more than the scores. Shape suffixes: R = rows of a
table, P = positions, K = candidates of one position, O = the target and those candidates.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def candidates_nll(
    s_CPR: Tensor, target_CP: Tensor, own_CPK: Tensor, weight_CPK: Tensor, common_CR: Tensor | None
) -> Tensor:
    """Returns -log softmax of the targets among their candidates, [C, P].

    `own_CPK` are the rows of the candidates of each position, each counted `weight_CPK` times (0:
    there is none); `common_CR` is how often each row is a candidate of all positions. A target
    counts once, and never as its own negative.
    """
    other_CPK = own_CPK != target_CP[..., None]
    return torch.as_tensor(_Nll.apply(s_CPR, target_CP, own_CPK, weight_CPK * other_CPK, common_CR))


class _Nll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        s_CPR: Tensor,
        target_CP: Tensor,
        own_CPK: Tensor,
        weight_CPK: Tensor,
        common_CR: Tensor | None,
    ) -> Tensor:
        at_CPO = torch.cat([target_CP[..., None], own_CPK], 2)
        e_CPO = s_CPR.gather(2, at_CPO)
        target_s_CP = e_CPO[..., 0].clone()
        e_CPO[..., 1:] += weight_CPK.to(s_CPR).log()
        most_CP1 = e_CPO.amax(2, keepdim=True)
        e_CPR = None
        if common_CR is not None:
            e_CPR = s_CPR + common_CR.to(s_CPR).log()[:, None]
            e_CPR.scatter_(2, target_CP[..., None], -torch.inf)
            most_CP1 = torch.maximum(most_CP1, e_CPR.amax(2, keepdim=True))
            e_CPR.sub_(most_CP1).exp_()
        e_CPO.sub_(most_CP1).exp_()
        sum_CP1 = e_CPO.sum(2, keepdim=True)
        sum_CP1 = sum_CP1 if e_CPR is None else sum_CP1 + e_CPR.sum(2, keepdim=True)
        ctx.rows = s_CPR.shape[2]
        ctx.save_for_backward(at_CPO, e_CPO, e_CPR, sum_CP1)
        return (sum_CP1.log() + most_CP1)[..., 0] - target_s_CP

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """d nll / d score = softmax - 1 at the target."""
        at_CPO, e_CPO, e_CPR, sum_CP1 = ctx.saved_tensors
        scale_CP1 = grads[0][..., None] / sum_CP1
        shape = (*at_CPO.shape[:2], ctx.rows)
        d_CPR = scale_CP1.new_zeros(shape) if e_CPR is None else e_CPR * scale_CP1
        d_CPO = e_CPO * scale_CP1
        d_CPO[..., 0] -= grads[0]
        return d_CPR.scatter_add_(2, at_CPO, d_CPO), None, None, None, None
