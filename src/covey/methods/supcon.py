"""CoFedRec's supervised contrast over all items of a table: value and gradient in closed form.

Z(i) are the other items of i's category, n_i of them. Autograd through all pairs of items would
hold about twenty arrays of items x items; this holds half of one, or none. Shape suffixes: K = item
categories, B = items of a tile, S = items of a sample.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

TILE = 256  # items whose similarities to the items after them are computed at once
CUDA_TILE = 4096  # the same on a GPU, where every launch costs time
HELD = 16384  # up to so many items half of the similarities is held; beyond, it is computed twice
TINY = 1e-6  # as in the published code

ValueGrad = tuple[Tensor, Tensor]  # the value [C], and its gradient by the table [C, I, D]


class KnownGradient(torch.autograd.Function):
    """A value [C] whose gradient by the table is known."""

    @staticmethod
    def forward(ctx: Any, table_CID: Tensor, value_C: Tensor, grad_CID: Tensor) -> Tensor:
        ctx.save_for_backward(grad_CID)
        return value_C.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0][:, None, None] * ctx.saved_tensors[0], None, None


def published(
    table_CID: Tensor, member_KI: Tensor, tau: float, tau0: float, drawn_CS: Tensor | None = None
) -> ValueGrad:
    """Eq. 8 as published code has it: unit rows, the mean of logarithms over positives and items.

    With F the unit rows and S_i the sum of F over i's category, the value is -tau / tau_0 times the
    mean of q_i = [F_i (S_i - F_i) / tau - n_i / tau - n_i log D_i] / n_i, where D_i sums exp((F_i
    F_j - 1) / tau) over j != i, or is estimated from a sample `drawn_CS` of items j. The numerator
    needs only the sums of the categories.
    """
    norm_CI1 = table_CID.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    unit_CID = table_CID / norm_CI1
    n_I, others_CID = others(unit_CID, member_KI)
    w_I = 1 / (n_I + TINY)
    if drawn_CS is None:
        push_CID, log_CI = _repulsion(unit_CID, n_I * w_I, tau)
    else:
        push_CID, log_CI = _sampled_repulsion(unit_CID, n_I * w_I, tau, drawn_CS)
    q_CI = w_I * (((unit_CID * others_CID).sum(-1) - n_I) / tau - n_I * log_CI)
    grad_CID = (push_CID - 2 * w_I[:, None] * others_CID).div_(tau0 * len(n_I))  # by F
    along_CI1 = (unit_CID * grad_CID).sum(-1, keepdim=True)
    grad_CID.addcmul_(along_CI1, unit_CID, value=-1).div_(norm_CI1)
    return -tau / tau0 * q_CI.mean(1), grad_CID


def printed(table_CID: Tensor, member_KI: Tensor, tau: float) -> ValueGrad:
    """Eq. 8 as printed: inner products, the logarithm of a mean over positives, a sum over items.

    An item that is alone in its category has no positive and counts 0. The gradient by s_ij is
    exp(s_ij) / sum over a of exp(s_ia), minus the same over Z(i) alone.
    """
    value_C, grad_CID = table_CID.new_zeros(len(table_CID)), torch.zeros_like(table_CID)
    category_I, n_I = member_KI.long().argmax(0), others(table_CID[:1], member_KI)[0]
    for first in range(0, table_CID.shape[1], TILE):
        rows = slice(first, first + TILE)
        tile_CBD = table_CID[:, rows]
        s_CBI = (tile_CBD @ table_CID.mT).div_(tau)
        s_CBI.diagonal(offset=first, dim1=1, dim2=2).fill_(-torch.inf)
        same_BI = category_I[rows, None] == category_I
        all_CB1 = s_CBI.logsumexp(-1, keepdim=True)
        near_CBI = s_CBI.masked_fill(~same_BI, -torch.inf)
        near_CB1 = near_CBI.logsumexp(-1, keepdim=True)
        some_B = n_I[rows] > 0
        each_CB = (all_CB1 - near_CB1)[..., 0] + n_I[rows].clamp(min=1).log()
        value_C += each_CB.where(some_B, 0).sum(1)
        w_CBI = (s_CBI - all_CB1).exp_() - (near_CBI - near_CB1.where(some_B[:, None], 0)).exp_()
        w_CBI *= some_B[:, None] / tau
        grad_CID[:, rows] += w_CBI @ table_CID
        grad_CID.baddbmm_(w_CBI.mT, tile_CBD)
    return value_C, grad_CID


def others(unit_CID: Tensor, member_KI: Tensor) -> tuple[Tensor, Tensor]:
    """n_i, and the sum of the rows of Z(i), [C, I, D]."""
    member_KI = member_KI.to(unit_CID)
    n_I = member_KI.sum(1) @ member_KI - 1
    member_CKI = member_KI.expand(len(unit_CID), -1, -1)  # a product per client, for the same bits
    return n_I, (member_CKI.mT @ (member_CKI @ unit_CID)).sub_(unit_CID)


def _repulsion(unit_CID: Tensor, share_I: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Returns r G F + G (r F) and log D, where G_ij = exp((F_i F_j - 1) / tau) and G_ii = 0.

    D is G 1 and r is share / D. G is symmetric, so only the tiles on and right of its diagonal are
    computed, and both products are computed as one.
    """
    height, dim = unit_CID.shape[1:]
    held = list(_tiles(unit_CID, tau)) if height <= HELD else None
    d_CI = unit_CID.new_full(unit_CID.shape[:2], TINY)
    for first, g_CBJ in held or _tiles(unit_CID, tau):
        last = first + g_CBJ.shape[1]
        d_CI[:, first:last] += g_CBJ.sum(-1)
        d_CI[:, last:] += g_CBJ[..., last - first :].sum(1)
    r_CI1 = (share_I / d_CI)[..., None]
    both_CIE = torch.cat([unit_CID, r_CI1 * unit_CID], -1)
    out_CIE = torch.zeros_like(both_CIE)
    for first, g_CBJ in held or _tiles(unit_CID, tau):
        last = first + g_CBJ.shape[1]
        out_CIE[:, first:last].baddbmm_(g_CBJ, both_CIE[:, first:])
        if last < height:
            out_CIE[:, last:].baddbmm_(g_CBJ[..., last - first :].mT, both_CIE[:, first:last])
    return out_CIE[..., dim:].addcmul_(r_CI1, out_CIE[..., :dim]), d_CI.log_()


def _tiles(unit_CID: Tensor, tau: float) -> Iterator[tuple[int, Tensor]]:
    """Yields the first row of each tile of G, and the tile from its diagonal on, [C, B, J]."""
    shift_111 = unit_CID.new_full((1, 1, 1), -1 / tau)
    tile = CUDA_TILE if unit_CID.is_cuda else TILE
    for first in range(0, unit_CID.shape[1], tile):
        rest_CJD = unit_CID[:, first:]
        g_CBJ = torch.baddbmm(shift_111, rest_CJD[:, :tile], rest_CJD.mT, alpha=1 / tau).exp_()
        g_CBJ.diagonal(dim1=1, dim2=2).zero_()
        yield first, g_CBJ


def _sampled_repulsion(
    unit_CID: Tensor, share_I: Tensor, tau: float, drawn_CS: Tensor
) -> tuple[Tensor, Tensor]:
    """`_repulsion` from columns drawn with replacement, which count I / S each: D is unbiased."""
    height, dim = unit_CID.shape[1:]
    some_CSD = unit_CID.gather(1, drawn_CS[..., None].expand(-1, -1, dim))
    shift_111 = unit_CID.new_full((1, 1, 1), -1 / tau)
    g_CIS = torch.baddbmm(shift_111, unit_CID, some_CSD.mT, alpha=1 / tau).exp_()
    g_CIS.scatter_(1, drawn_CS[:, None], 0.0)  # an item is not its own negative
    scale = height / drawn_CS.shape[1]
    d_CI = g_CIS.sum(-1).mul_(scale).add_(TINY)
    r_CI1 = (share_I / d_CI)[..., None]
    both_CSE = torch.cat([some_CSD, r_CI1.gather(1, drawn_CS[..., None]) * some_CSD], -1)
    out_CIE = (g_CIS @ both_CSE).mul_(scale)
    return out_CIE[..., dim:].addcmul_(r_CI1, out_CIE[..., :dim]), d_CI.log_()


def members(category_I: Tensor) -> Tensor:
    """The items of each category, one-hot, [K, I]."""
    return F.one_hot(category_I).T
