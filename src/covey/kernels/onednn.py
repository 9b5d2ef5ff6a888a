"""The contrastive loss of `methods/views.py` on a CPU with AVX-512, with products by oneDNN.

torch multiplies single precision by MKL, which does not use AVX-512 on AMD processors; oneDNN does
(`bench/bench_contrast.py` compares both). torch offers oneDNN's product as an operation for
compiled layers, without batches. So this is a loop over clients, for lists so long that a call
costs little beside its arithmetic; a single client also needs no padding. K = rows of a tile.
"""

import torch
from torch import Tensor

from . import LOG2E, REGISTERS

TILE = 262_144  # similarities at once: as many as fit into the second cache, for fewest calls
FEWEST = 512  # from so many rows of a client on, it is faster


def available() -> bool:
    """Whether this machine and this version of torch have the kernel."""
    found = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return found and torch.backends.cpu.get_cpu_capability() == "AVX512"


def log_sums(
    a_CRD: Tensor, b_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the same as `contrast.log_sums`; 0 for rows after the last one with a weight."""
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
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, y, add, "none", [], "")
    return out
