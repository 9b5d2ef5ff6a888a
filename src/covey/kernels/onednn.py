"""The contrast of `methods/views.py` on a CPU with AVX-512: a client at a time, products by oneDNN.

torch multiplies single precision by MKL, which on AMD's processors does without AVX-512; oneDNN does not
(`bench/bench_contrast.py` has both). torch gives oneDNN's product as an operation for compiled layers, which knows no
batches: hence a loop over clients, for long lists, where a call is little beside its arithmetic. Alone, a client also
needs no padding.

K = rows of a tile.
"""

import torch
from torch import Tensor

from . import LOG2E, REGISTERS

TILE = 262_144  # similarities that are held at once: as many as the second cache takes, for each call costs as well
FEWEST = 512  # rows of a client for which it is quicker


def there() -> bool:
    """Whether this machine and this torch have it."""
    wide = (
        torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )
    return wide and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def log_sums(
    a_CRD: Tensor, b_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log sum_j exp(a_k . b_j / tau + bar_j), [C, R], and the gradients of its weighted sum; 0 of rows without weight
    behind the last one that has some."""
    log_CR, to_a, to_b = torch.zeros_like(bar_CR), torch.zeros_like(a_CRD), torch.zeros_like(b_CRD)
    place_R = torch.arange(1, a_CRD.shape[1] + 1)
    last_C = torch.where(weight_CR > 0, place_R, 0).amax(1)
    for client, last in enumerate(last_C.tolist()):
        own = client, slice(0, last + -last % REGISTERS)
        log_CR[own], to_a[own], to_b[own] = _of_client(
            a_CRD[own], b_CRD[own], weight_CR[own], bar_CR[own], tau
        )
    return log_CR, to_a, to_b


def _of_client(
    a_RD: Tensor, b_RD: Tensor, weight_R: Tensor, bar_R: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    b_DR, steep_RD, steep_bar_R = b_RD.mT.contiguous(), a_RD * (LOG2E / tau), bar_R * LOG2E
    log_R, to_a, to_b_DR = torch.empty_like(bar_R), torch.empty_like(a_RD), torch.zeros_like(b_DR)
    many = max(8, TILE // max(1, len(a_RD)))
    for at in range(0, len(a_RD), many):
        tile = slice(at, at + many)
        exp_KR = _product(steep_RD[tile], b_RD, steep_bar_R).exp2_()
        sum_K1 = exp_KR.sum(1, keepdim=True).clamp_(min=torch.finfo(exp_KR.dtype).tiny)
        log_R[tile] = sum_K1[:, 0].log()
        share_K1 = weight_R[tile, None] / (sum_K1 * tau)
        to_a[tile] = _product(exp_KR, b_DR).mul_(share_K1)
        to_b_DR += _product((share_K1 * a_RD[tile]).mT, exp_KR.mT)
    return log_R, to_a, to_b_DR.mT


def _product(x: Tensor, y: Tensor, add: Tensor | None = None) -> Tensor:
    """x y' + add."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, y, add, "none", [], "")
    return out
