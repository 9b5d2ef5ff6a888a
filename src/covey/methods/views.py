"""Two views of the same vectors, and the contrast between them: what CL4FedRec and SimGCL have in common.

K = rows of a tile, P = rows that are left when a client's other rows are set aside.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..examples import Batch
from ..rng import Rng

Which = Literal["all", "positives"]
Reduction = Literal["mean", "sum"]
EXCLUDED = -1e9  # finite, so that a client without any row has a loss of 0 and no NaN
TILE = 65_536  # similarities of a client that are held at once
EIGHTHS = (2, 3, 4, 6, 8)  # of its rows: into how many a client's positives fit


def noise(x: Tensor, eta: float, rng: Rng, relative: bool = False) -> Tensor:
    """[C, ..., D]: `eta` long (times the vector's own length where relative), and in the vector's orthant."""
    z = rng.uniform(*x.shape[1:]).to(x)
    size = eta * x.norm(dim=-1, keepdim=True) if relative else eta
    return size * F.normalize(z, dim=-1) * x.sign()


def contrasted_rows(batch: Batch, which: Which) -> Tensor:
    """[C, R]: rows with an example that counts, or with a positive one."""
    weight_CR = batch.weight_CL * (batch.label_CL > 0) if which == "positives" else batch.weight_CL
    if batch.index_CL is not None:
        weight_CR = weight_CR.new_zeros(batch.real_CR.shape).scatter_add(1, batch.index_CL, weight_CR)
    return batch.real_CR & (weight_CR > 0)


def item_loss(one_CRD: Tensor, two_CRD: Tensor, rows_CR: Tensor, tau: float, reduction: Reduction = "mean") -> Tensor:
    """[C]: -log softmax over j of cos(one_k, two_j) / tau at j = k, over the rows k that take part."""
    weight_CR = rows_CR.to(one_CRD)
    if reduction == "mean":
        weight_CR = weight_CR / rows_CR.sum(1, keepdim=True).clamp(min=1)
    bar_CR = torch.full_like(weight_CR, -1 / tau).masked_fill(~rows_CR, EXCLUDED)  # a cosine is at most 1
    one_CRD, two_CRD = F.normalize(one_CRD, dim=2) / tau, F.normalize(two_CRD, dim=2)
    total_C: Tensor = _LogSums.apply(one_CRD, two_CRD, weight_CR, bar_CR)
    return total_C + weight_CR.sum(1) / tau - ((one_CRD * two_CRD).sum(2) * weight_CR).sum(1)


def few_items_loss(
    v_CRD: Tensor, one_CRD: Tensor, two_CRD: Tensor, rows_CR: Tensor, tau: float, reduction: Reduction = "mean"
) -> Tensor:
    """`item_loss` of v + one and v + two where few rows take part: pairs of the others are not computed.

    How many rows are set aside depends on the client alone, and no product is of one client alone, so
    that sums keep their order whoever shares the block.
    """
    n_C, n_rows = rows_CR.sum(1), rows_CR.shape[1]
    order_CR = (~rows_CR).byte().argsort(dim=1, stable=True)  # those that take part come first
    loss_C = v_CRD.new_zeros(len(v_CRD))
    least = -1
    for eighths in EIGHTHS:
        most = n_rows * eighths // 8
        pick = ((n_C > least) & (n_C <= most)).nonzero()[:, 0]
        least = most
        if not len(pick) or not most:
            continue
        twice = pick.repeat(2) if len(pick) == 1 else pick
        order_CP = order_CR[twice, :most]
        flat_CP = order_CP + twice[:, None] * n_rows
        v_CPD, one_CPD, two_CPD = (F.embedding(flat_CP, x.flatten(0, 1)) for x in (v_CRD, one_CRD, two_CRD))
        some_CP = rows_CR[twice].gather(1, order_CP)
        each_C = item_loss(v_CPD + one_CPD, v_CPD + two_CPD, some_CP, tau, reduction)
        loss_C = loss_C.index_copy(0, pick, each_C[: len(pick)])
    return loss_C


class _LogSums(torch.autograd.Function):
    """Weighted sum over k of log sum_j exp(a_k . b_j + bar_j), with its gradient, a tile of rows at a time.

    The [R, R] matrix never exists: a client with 3,000 items would need four of 36 MB.
    """

    @staticmethod
    def forward(ctx: Any, a_CRD: Tensor, b_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor) -> Tensor:
        total_C, to_a, to_b = a_CRD.new_zeros(len(a_CRD)), torch.empty_like(a_CRD), torch.zeros_like(b_CRD)
        many = tile_rows(a_CRD.shape[1])
        for at in range(0, a_CRD.shape[1], many):
            a_CKD, weight_CK1 = a_CRD[:, at : at + many], weight_CR[:, at : at + many, None]
            exp_CKR = torch.baddbmm(bar_CR[:, None], a_CKD, b_CRD.mT).exp_()
            sum_CK1 = exp_CKR.sum(2, keepdim=True).clamp(min=torch.finfo(a_CRD.dtype).tiny)
            total_C += (sum_CK1.log() * weight_CK1).sum((1, 2))
            share_CK1 = weight_CK1 / sum_CK1
            to_a[:, at : at + many] = share_CK1 * (exp_CKR @ b_CRD)
            to_b.baddbmm_(exp_CKR.mT, share_CK1 * a_CKD)
        ctx.save_for_backward(to_a, to_b)
        return total_C

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor) -> tuple[Tensor, Tensor, None, None]:
        to_a, to_b = ctx.saved_tensors
        return grad_C[:, None, None] * to_a, grad_C[:, None, None] * to_b, None, None


def tile_rows(n_rows: int) -> int:
    """Depends on the client alone, so that sums keep their order whoever shares the block."""
    return max(8, TILE // n_rows)
