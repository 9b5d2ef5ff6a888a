"""Two views of the same vectors, and the contrast between them: what CL4FedRec and SimGCL have in common.

K = rows of a tile, P = rows of a client that take part, where the others are set aside.
"""

import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from shutil import which
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.examples import Batch
from covey.core.padding import pad_lengths
from covey.core.ragged import Fields, Ragged, offsets_of
from covey.core.rng import Rng
from covey.kernels import LOG2E, REGISTERS, onednn

Which = Literal["all", "positives"]
Reduction = Literal["mean", "sum"]
EXCLUDED = -1e9  # finite, so that a client without any row has a loss of 0 and no NaN
TILE = 65_536  # similarities of a client that are held at once on a CPU
AT_ONCE = 1 << 28  # those of a block on CUDA: 1 GiB
SHORTEST = 1e-12  # a length to divide by
KERNEL_WIDTH = 128  # of vectors that fit on the chip


def noise(x: Tensor, eta: float, rng: Rng, relative: bool = False) -> Tensor:
    """[C, ..., D]: `eta` long (times the vector's own length where relative), and in the vector's orthant."""
    z = rng.uniform(*x.shape[1:]).to(x)
    size = eta * x.norm(dim=-1, keepdim=True) if relative else eta
    return size * F.normalize(z, dim=-1) * x.sign()


def contrasted_rows(batch: Batch, which: Which) -> Tensor:
    """[C, R]: rows with an example that counts, or with a positive one."""
    weight_CR = batch.weight_CL * (batch.label_CL > 0) if which == "positives" else batch.weight_CL
    if batch.index_CL is not None:
        weight_CR = weight_CR.new_zeros(batch.real_CR.shape).scatter_add(
            1, batch.index_CL, weight_CR
        )
    return batch.real_CR & (weight_CR > 0)


def item_loss(
    one_CRD: Tensor, two_CRD: Tensor, rows_CR: Tensor, tau: float, reduction: Reduction = "mean"
) -> Tensor:
    """[C]: -log softmax over j of cos(one_k, two_j) / tau at j = k, over the rows k that take part."""
    if short := -rows_CR.shape[1] % REGISTERS:
        one_CRD, two_CRD = (F.pad(x, (0, 0, 0, short)) for x in (one_CRD, two_CRD))
        rows_CR = F.pad(rows_CR, (0, short))
    weight_CR = rows_CR.to(one_CRD)
    if reduction == "mean":
        weight_CR = weight_CR / rows_CR.sum(1, keepdim=True).clamp(min=1)
    bar_CR = torch.full_like(weight_CR, -1 / tau).masked_fill(
        ~rows_CR, EXCLUDED
    )  # a cosine is at most 1
    loss_C: Tensor = _Contrast.apply(one_CRD, two_CRD, weight_CR, bar_CR, tau)
    return loss_C


class Few(NamedTuple):
    """Clients with like numbers of rows that take part, and where these stand in the flattened tables."""

    key: str
    clients: Tensor
    at_CP: Tensor  # one client alone stands here twice: products of one round differently
    some_CP: Tensor  # bool: no padding

    def rows(self) -> Tensor:
        """Which client each row of `at_CP` is of."""
        return self.clients.repeat(len(self.at_CP) // len(self.clients))

    def repeated(self, times: int) -> "Few":
        return self._replace(
            at_CP=self.at_CP.repeat(times, 1), some_CP=self.some_CP.repeat(times, 1)
        )

    def of(self, x_CRD: Tensor) -> Tensor:
        """The rows of these clients that take part, [C, P, D]."""
        return F.embedding(self.at_CP, x_CRD.flatten(0, 1))


def few_rows(rows_CR: Tensor) -> Fields:
    """Packs the rows that take part. To how many they are padded depends on the client alone, so that sums keep
    their order whoever shares the block."""
    n_C, made = rows_CR.sum(1), dict[str, Tensor]()
    lists = Ragged(rows_CR.flatten().nonzero()[:, 0], offsets_of(n_C))
    width_C = pad_lengths(n_C, coarse=rows_CR.is_cuda).masked_fill(n_C == 0, 0)
    for width in width_C.unique().tolist():
        if width:
            clients = (width_C == width).nonzero()[:, 0]
            part = lists.take(clients.repeat(2) if len(clients) == 1 else clients)
            found = {"clients": clients, "at": part.padded(width), "some": part.mask(width)}
            made |= {f"{width}/{name}": x for name, x in found.items()}
    return made


def fews(ready: Fields) -> Iterator[Few]:
    """What `few_rows` packed."""
    for key in [name.removesuffix("/clients") for name in ready if name.endswith("/clients")]:
        yield Few(key, ready[f"{key}/clients"], ready[f"{key}/at"], ready[f"{key}/some"])


def few_items_loss(
    v_CRD: Tensor, ready: Fields, tau: float, reduction: Reduction = "mean"
) -> Tensor:
    """`item_loss` where few rows take part: pairs of the others are not computed.

    `ready` holds what `few_rows` packed, and each pack's views as "P/one" and "P/two".
    """
    loss_C = v_CRD.new_zeros(len(v_CRD))
    for few in fews(ready):
        v_CPD = few.of(v_CRD)
        one_CPD, two_CPD = v_CPD + ready[f"{few.key}/one"], v_CPD + ready[f"{few.key}/two"]
        each_C = item_loss(one_CPD, two_CPD, few.some_CP, tau, reduction)
        loss_C = loss_C.index_copy(0, few.clients, each_C[: len(few.clients)])
    return loss_C


class _Contrast(torch.autograd.Function):
    """Weighted sum over k of log sum_j exp(cos(one_k, two_j) / tau) - cos(one_k, two_k) / tau, and its gradient.

    A tile of rows at a time: on a CPU the [R, R] matrix never exists, which for a client with 3,000 items would be
    four of 36 MB. The gradient by hand takes half the operations on rows that autograd would.
    """

    @staticmethod
    def forward(
        ctx: Any, one_CRD: Tensor, two_CRD: Tensor, weight_CR: Tensor, bar_CR: Tensor, tau: float
    ) -> Tensor:
        long_CR1, a_CRD = unit(one_CRD)
        wide_CR1, b_CRD = unit(two_CRD)
        weight_CR1 = weight_CR[..., None]
        loss_C = ((1 - (a_CRD * b_CRD).sum(2)) * weight_CR).sum(1) / tau
        log_CR, to_a, to_b = _log_sums(a_CRD, b_CRD, weight_CR1, bar_CR, tau)
        loss_C += (log_CR * weight_CR).sum(1)
        to_a.addcmul_(weight_CR1, b_CRD, value=-1 / tau)
        to_b.addcmul_(weight_CR1, a_CRD, value=-1 / tau)
        ctx.save_for_backward(across(to_a, a_CRD, long_CR1), across(to_b, b_CRD, wide_CR1))
        return loss_C

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        to_one, to_two = ctx.saved_tensors
        return grad_C[:, None, None] * to_one, grad_C[:, None, None] * to_two, None, None, None


def unit(x_CRD: Tensor) -> tuple[Tensor, Tensor]:
    """Lengths and directions."""
    size_CR1 = x_CRD.norm(dim=2, keepdim=True).clamp_(min=SHORTEST)
    return size_CR1, x_CRD / size_CR1


def across(grad_CRD: Tensor, unit_CRD: Tensor, size_CR1: Tensor) -> Tensor:
    """A gradient of directions as one of the vectors: what points along them does nothing."""
    along_CR1 = (grad_CRD * unit_CRD).sum(2, keepdim=True)
    return grad_CRD.addcmul_(along_CR1, unit_CRD, value=-1).div_(size_CR1)


def _log_sums(
    a_CRD: Tensor, b_CRD: Tensor, weight_CR1: Tensor, bar_CR: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log sum_j exp(a_k . b_j / tau + bar_j), [C, R], and the gradients of its weighted sum."""
    small = a_CRD.dtype == torch.float32 and a_CRD.shape[2] <= KERNEL_WIDTH
    if small and (kernels := _kernels(a_CRD.is_cuda, a_CRD.shape[1])):
        return kernels.log_sums(a_CRD, b_CRD, weight_CR1[..., 0], bar_CR, tau)
    log_CR, to_a, to_b = (
        torch.empty_like(bar_CR),
        torch.empty_like(a_CRD),
        torch.zeros_like(b_CRD.mT),
    )
    steep_CRD, bar_C1R, many = a_CRD * (LOG2E / tau), bar_CR[:, None] * LOG2E, _rows_at_once(a_CRD)
    for at in range(0, a_CRD.shape[1], many):
        tile = slice(at, at + many)
        exp_CKR = torch.baddbmm(bar_C1R, steep_CRD[:, tile], b_CRD.mT).exp2_()
        sum_CK1 = exp_CKR.sum(2, keepdim=True).clamp_(min=torch.finfo(a_CRD.dtype).tiny)
        log_CR[:, tile] = sum_CK1[..., 0].log()
        share_CK1 = weight_CR1[:, tile] / (sum_CK1 * tau)
        to_a[:, tile] = (exp_CKR @ b_CRD).mul_(share_CK1)
        to_b.baddbmm_((share_CK1 * a_CRD[:, tile]).mT, exp_CKR)
    return log_CR, to_a, to_b.mT.contiguous()


def _kernels(cuda: bool, n_rows: int) -> ModuleType | None:
    """What this machine has for lists of that length; depends on the client alone, as all that rounds."""
    if cuda:
        return _triton()
    return onednn if n_rows >= onednn.FEWEST and onednn.available() else None


@cache
def _triton() -> ModuleType | None:
    """Kernels that hold no matrix, where Triton is installed and finds the C compiler that it needs."""
    if not find_spec("triton") or not (os.environ.get("CC") or which("gcc") or which("clang")):
        return None
    from covey.kernels import contrast

    return contrast


def _rows_at_once(a_CRD: Tensor) -> int:
    """A GPU pays for every launch, so that it takes as many as fit."""
    n_clients, n_rows, _ = a_CRD.shape
    return max(8, AT_ONCE // (n_clients * n_rows)) if a_CRD.is_cuda else tile_rows(n_rows)


def tile_rows(n_rows: int) -> int:
    """Depends on the client alone, so that sums keep their order whoever shares the block."""
    return max(8, TILE // n_rows)


def held(n_rows: int) -> int:
    """Similarities of a client that a contrast of all its rows holds at once."""
    return min(TILE, n_rows * n_rows)
