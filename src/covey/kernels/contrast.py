"""The contrastive loss of `methods/views.py` on a GPU, without storing its [R, R] matrix.

One kernel sums over the rows of the matrix, one over its columns; its exponentials stay on the
chip. A product consists of three TF32 products, which are as exact as single precision for numbers
of at most 1. K, J = rows of a tile, E = width padded to a power of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import LOG2E

TILE_ROWS = 64


@triton.jit  # type: ignore[untyped-decorator]
def _rows(  # type: ignore[no-untyped-def]
    a, b, bar, weight, many, log, share, to_a, scale, tau, R, D, E: tl.constexpr, K: tl.constexpr
):
    """For row k: log sum_j exp2(scale a_k . b_j + bar_j), its share, and the gradient to a_k."""
    client, k = tl.program_id(0), tl.program_id(1) * K + tl.arange(0, K)
    wide, first = tl.arange(0, E), client.to(tl.int64) * R
    there = (k < R)[:, None] & (wide < D)[None, :]
    at = (first + k)[:, None] * D + wide[None, :]
    a_KE = tl.load(a + at, mask=there, other=0.0) * scale
    sum_K, to_KE = tl.zeros([K], tl.float32), tl.zeros([K, E], tl.float32)
    for begin in range(0, tl.load(many + client), K):
        j = begin + tl.arange(0, K)
        inside = (j < R)[:, None] & (wide < D)[None, :]
        b_JE = tl.load(b + (first + j)[:, None] * D + wide[None, :], mask=inside, other=0.0)
        bar_J = tl.load(bar + first + j, mask=j < R, other=-1e9)
        exp_KJ = tl.exp2(tl.dot(a_KE, tl.trans(b_JE), input_precision="tf32x3") + bar_J[None, :])
        sum_K += tl.sum(exp_KJ, 1)
        to_KE += tl.dot(exp_KJ, b_JE, input_precision="tf32x3")
    sum_K = tl.maximum(sum_K, 1.1754944e-38)
    share_K = tl.load(weight + first + k, mask=k < R, other=0.0) / (sum_K * tau)
    tl.store(log + first + k, tl.log(sum_K), mask=k < R)
    tl.store(share + first + k, share_K, mask=k < R)
    tl.store(to_a + at, to_KE * share_K[:, None], mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _columns(  # type: ignore[no-untyped-def]
    a, b, bar, many, share, to_b, scale, R, D, E: tl.constexpr, K: tl.constexpr
):
    """For each column j: the gradient to b_j, sum_k share_k exp2(scale a_k . b_j + bar_j) a_k."""
    client, j = tl.program_id(0), tl.program_id(1) * K + tl.arange(0, K)
    wide, first = tl.arange(0, E), client.to(tl.int64) * R
    there = (j < R)[:, None] & (wide < D)[None, :]
    at = (first + j)[:, None] * D + wide[None, :]
    b_JE = tl.load(b + at, mask=there, other=0.0) * scale
    bar_J = tl.load(bar + first + j, mask=j < R, other=-1e9)
    to_JE = tl.zeros([K, E], tl.float32)
    for begin in range(0, tl.load(many + client), K):
        k = begin + tl.arange(0, K)
        inside = (k < R)[:, None] & (wide < D)[None, :]
        a_KE = tl.load(a + (first + k)[:, None] * D + wide[None, :], mask=inside, other=0.0)
        share_K = tl.load(share + first + k, mask=k < R, other=0.0)
        exp_JK = tl.exp2(tl.dot(b_JE, tl.trans(a_KE), input_precision="tf32x3") + bar_J[:, None])
        to_JE += tl.dot(exp_JK * share_K[None, :], a_KE, input_precision="tf32x3")
    tl.store(to_b + at, to_JE, mask=there)


def log_sums(
    a_CRD: Tensor, b_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes log sum_j exp(a_k . b_j / tau + bar_j) and the gradients of its weighted sum.

    The logarithms are [C, R]. The vectors are two views of the rows. Rows that do not take part
    have weight 0; to exclude a row from the similarities its `bar_CR` is very small.
    """
    n_clients, n_rows, dim = a_CRD.shape
    a, b, weight, bar = (x.contiguous() for x in (a_CRD, b_CRD, weight_CR, bar_CR * LOG2E))
    place_R = torch.arange(1, n_rows + 1, device=a.device, dtype=torch.int32)
    many_C = torch.where(weight > 0, place_R, 0).amax(1)  # up to the last row that takes part
    log_CR, share_CR, to_a, to_b = (torch.empty_like(x) for x in (bar, bar, a, b))
    grid = (n_clients, triton.cdiv(n_rows, TILE_ROWS))
    width = max(16, triton.next_power_of_2(dim))
    sizes: dict[str, Any] = {"R": n_rows, "D": dim, "E": width, "K": TILE_ROWS}
    _rows[grid](a, b, bar, weight, many_C, log_CR, share_CR, to_a, LOG2E / tau, tau, **sizes)
    _columns[grid](a, b, bar, many_C, share_CR, to_b, LOG2E / tau, **sizes)
    return log_CR, to_a, to_b
