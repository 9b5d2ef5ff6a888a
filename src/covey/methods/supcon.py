"""Supervised contrast over all items of many clients' tables at once: its value and its slope in closed form.

Z(i) are the other items of i's category, n_i of them. Autograd through all pairs of items would hold
and sweep some twenty arrays of items x items; here there is half of one, or none.

Further shape suffixes: K = item categories, B = items of a tile, S = items of a sample.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

TILE = 256  # items whose similarities to the items after them are computed at once
CUDA_TILE = 4096  # a GPU pays for every launch
HELD = 16384  # up to so many items half of their similarities is held; beyond, it is computed twice
TINY = 1e-6  # as in the published code

Slope = tuple[Tensor, Tensor]  # the value [C], and its gradient by the table [C, I, D]


class Known(torch.autograd.Function):
    """A value whose gradient by the table is known, [C]."""

    @staticmethod
    def forward(ctx: Any, table_CID: Tensor, value_C: Tensor, slope_CID: Tensor) -> Tensor:
        ctx.save_for_backward(slope_CID)
        return value_C.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0][:, None, None] * ctx.saved_tensors[0], None, None


def published(
    table_CID: Tensor, member_KI: Tensor, tau: float, tau0: float, drawn_CS: Tensor | None = None
) -> Slope:
    """Eq. 8 as the published code has it: unit rows, the mean over positives of the logarithms, a mean over items.

    With F the unit rows and S_i the sum of F over i's category: the value is -tau / tau_0 times the mean of
    q_i = [F_i (S_i - F_i) / tau - n_i / tau - n_i log D_i] / n_i, where D_i sums exp((F_i F_j - 1) / tau) over
    j != i. Categories' sums are all that the numerator needs. `drawn_CS` estimates D_i from a sample of j.
    """
    norm_CI1 = table_CID.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    unit_CID = table_CID / norm_CI1
    n_I, others_CID = _others(unit_CID, member_KI)
    w_I = 1 / (n_I + TINY)
    if drawn_CS is None:
        push_CID, log_CI = _repulsion(unit_CID, n_I * w_I, tau)
    else:
        push_CID, log_CI = _sampled_repulsion(unit_CID, n_I * w_I, tau, drawn_CS)
    q_CI = w_I * (((unit_CID * others_CID).sum(-1) - n_I) / tau - n_I * log_CI)
    slope_CID = (push_CID - 2 * w_I[:, None] * others_CID).div_(tau0 * len(n_I))  # by F
    along_CI1 = (unit_CID * slope_CID).sum(-1, keepdim=True)
    slope_CID.addcmul_(along_CI1, unit_CID, value=-1).div_(norm_CI1)
    return -tau / tau0 * q_CI.mean(1), slope_CID


def printed(table_CID: Tensor, member_KI: Tensor, tau: float) -> Slope:
    """Eq. 8 as printed: raw inner products, the logarithm of the mean over positives, a sum over items.

    An item alone in its category has no positive and counts nothing. By s_ij the slope is
    exp(s_ij) / sum over a of exp(s_ia), less the same over Z(i) alone.
    """
    value_C, slope_CID = table_CID.new_zeros(len(table_CID)), torch.zeros_like(table_CID)
    category_I, n_I = member_KI.long().argmax(0), _others(table_CID[:1], member_KI)[0]
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
        slope_CID[:, rows] += w_CBI @ table_CID
        slope_CID.baddbmm_(w_CBI.mT, tile_CBD)
    return value_C, slope_CID


def _others(unit_CID: Tensor, member_KI: Tensor) -> tuple[Tensor, Tensor]:
    """n_i, and the sum of the rows of Z(i), [C, I, D]."""
    member_KI = member_KI.to(unit_CID)
    n_I = member_KI.sum(1) @ member_KI - 1
    member_CKI = member_KI.expand(
        len(unit_CID), -1, -1
    )  # one product per client, so with the same bits
    return n_I, (member_CKI.mT @ (member_CKI @ unit_CID)).sub_(unit_CID)


def _repulsion(unit_CID: Tensor, share_I: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """For G_ij = exp((F_i F_j - 1) / tau), G_ii = 0, D = G 1 and r = share / D: r G F + G (r F), and log D.

    G is symmetric, so only tiles on and right of its diagonal are computed, and both products are one.
    """
    height, dim = unit_CID.shape[1:]
    tiles = lambda: _tiles(unit_CID, tau)
    held = list(tiles()) if height <= HELD else None
    d_CI = unit_CID.new_full(unit_CID.shape[:2], TINY)
    for first, g_CBJ in held or tiles():
        last = first + g_CBJ.shape[1]
        d_CI[:, first:last] += g_CBJ.sum(-1)
        d_CI[:, last:] += g_CBJ[..., last - first :].sum(1)
    r_CI1 = (share_I / d_CI)[..., None]
    both_CIE = torch.cat([unit_CID, r_CI1 * unit_CID], -1)
    out_CIE = torch.zeros_like(both_CIE)
    for first, g_CBJ in held or tiles():
        last = first + g_CBJ.shape[1]
        out_CIE[:, first:last].baddbmm_(g_CBJ, both_CIE[:, first:])
        if last < height:
            out_CIE[:, last:].baddbmm_(g_CBJ[..., last - first :].mT, both_CIE[:, first:last])
    return out_CIE[..., dim:].addcmul_(r_CI1, out_CIE[..., :dim]), d_CI.log_()


def _tiles(unit_CID: Tensor, tau: float) -> Iterator[tuple[int, Tensor]]:
    """Rows of G from their diagonal on, a tile at a time: where it starts, [C, B, I - start]."""
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
    """The same from columns that are drawn with replacement, each standing for I / S of them: D is unbiased."""
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
    """[K, I]"""
    return F.one_hot(category_I).T
