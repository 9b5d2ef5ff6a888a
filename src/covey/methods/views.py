"""The contrast between two noisy views of the same vectors, which CL4FedRec and SimGCL share.

Shape suffixes: K = rows of a tile, P = the rows of a client that take part, packed together.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from shutil import which
from types import ModuleType
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import Fields, Ragged, Rng, offsets_of
from covey.core.padding import pad_lengths
from covey.kernels import LOG2E, REGISTERS, onednn
from covey.mechanism import Batch, ClientView

Which = Literal["all", "positives"]
Reduction = Literal["mean", "sum"]
EXCLUDED = -1e9  # finite, so that a client without any row has a loss of 0 and no NaN
TILE = 65_536  # similarities of a client that are held at once on a CPU
AT_ONCE = 1 << 28  # similarities of a block that are held at once on CUDA: 1 GiB
SHORTEST = 1e-12  # the least length that is divided by
KERNEL_WIDTH = 128  # the widest vectors that fit on the chip


def noise(x: Tensor, eta: float, rng: Rng, relative: bool = False) -> Tensor:
    """Noise for vectors of x, each `eta` (times the vector if `relative`) long, in its orthant."""
    z = rng.uniform(*x.shape[1:]).to(x)
    size = eta * x.norm(dim=-1, keepdim=True) if relative else eta
    return size * F.normalize(z, dim=-1) * x.sign()


def contrasted_rows(batch: Batch, which: Which) -> Tensor:
    """The rows with an example of positive weight, or with a positive example, [C, R], bool."""
    weight_CR = batch.weight_CL * (batch.label_CL > 0) if which == "positives" else batch.weight_CL
    if batch.index_CL is not None:
        zeros_CR = weight_CR.new_zeros(batch.real_CR.shape)
        weight_CR = zeros_CR.scatter_add(1, batch.index_CL, weight_CR)
    return batch.real_CR & (weight_CR > 0)


def item_loss(
    one_CRD: Tensor, two_CRD: Tensor, rows_CR: Tensor, tau: float, reduction: Reduction = "mean"
) -> Tensor:
    """-log softmax over j of cos(one_k, two_j) / tau at j = k, over a client's rows k, [C]."""
    if short := -rows_CR.shape[1] % REGISTERS:
        one_CRD, two_CRD = (F.pad(x, (0, 0, 0, short)) for x in (one_CRD, two_CRD))
        rows_CR = F.pad(rows_CR, (0, short))
    weight_CR = rows_CR.to(one_CRD)
    if reduction == "mean":
        weight_CR = weight_CR / rows_CR.sum(1, keepdim=True).clamp(min=1)
    # Less the largest cosine, so that exp cannot overflow.
    bias_CR = torch.full_like(weight_CR, -1 / tau).masked_fill(~rows_CR, EXCLUDED)
    loss_C: Tensor = _Contrast.apply(one_CRD, two_CRD, weight_CR, bias_CR, tau)
    return loss_C


class RowPack(NamedTuple):
    """The rows that take part, of clients with similar numbers of them."""

    key: str
    clients: Tensor
    at_CP: Tensor  # places in the flattened tables; a single client is repeated, see `pack_rows`
    some_CP: Tensor  # bool: no padding

    def owner(self) -> Tensor:
        """The client of each row of `at_CP`."""
        return self.clients.repeat(len(self.at_CP) // len(self.clients))

    def repeated(self, times: int) -> "RowPack":
        at_CP, some_CP = (x_CP.repeat(times, 1) for x_CP in (self.at_CP, self.some_CP))
        return self._replace(at_CP=at_CP, some_CP=some_CP)

    def of(self, x_CRD: Tensor) -> Tensor:
        """The rows of these clients that take part, [C, P, D]."""
        return F.embedding(self.at_CP, x_CRD.flatten(0, 1))


def pack_rows(rows_CR: Tensor) -> Fields:
    """Packs the rows that take part, [C, R], bool, as `packs` reads them.

    Their padding depends on the client alone, so sums keep their order whichever clients share the
    block. A pack of one client repeats it, since products of a single matrix round differently.
    """
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


def compared(view: ClientView, which: Which) -> Fields:
    """The rows that a contrast compares: packed if few of them take part."""
    assert view.batch is not None
    rows_CR = contrasted_rows(view.batch, which)
    return pack_rows(rows_CR) if which == "positives" else {"rows": rows_CR}


def packs(ready: Fields) -> Iterator[RowPack]:
    """The packs that `pack_rows` made."""
    for key in [name.removesuffix("/clients") for name in ready if name.endswith("/clients")]:
        yield RowPack(key, ready[f"{key}/clients"], ready[f"{key}/at"], ready[f"{key}/some"])


def packed_item_loss(v_CRD: Tensor, ready: Fields, tau: float, reduction: Reduction) -> Tensor:
    """`item_loss` if few rows take part: pairs of other rows are not computed.

    `ready` holds the result of `pack_rows`, and the noise of views as "{key}/one", "{key}/two".
    """
    loss_C = v_CRD.new_zeros(len(v_CRD))
    for pack in packs(ready):
        v_CPD = pack.of(v_CRD)
        one_CPD, two_CPD = v_CPD + ready[f"{pack.key}/one"], v_CPD + ready[f"{pack.key}/two"]
        each_C = item_loss(one_CPD, two_CPD, pack.some_CP, tau, reduction)
        loss_C = loss_C.index_copy(0, pack.clients, each_C[: len(pack.clients)])
    return loss_C


def row_loss(
    v_CRD: Tensor, ready: Fields, keys: tuple[str, str], tau: float, reduction: Reduction
) -> Tensor:
    """The contrast of the rows that `compared` returned, whose noise has these keys, [C]."""
    if "rows" not in ready:
        return packed_item_loss(v_CRD, ready, tau, reduction)
    one_CRD, two_CRD = (v_CRD + ready[key] for key in keys)
    return item_loss(one_CRD, two_CRD, ready["rows"], tau, reduction)


def packed_view(view: ClientView, pack: RowPack) -> ClientView:
    """The view of a pack's clients with only the rows that take part, for gradients of these rows.

    One more row carries the weight of all other rows, so that averages keep their divisor.
    """
    assert view.batch is not None
    owner, batch = pack.owner(), view.batch
    weight_CR, label_CR, offset_CR = _by_row(batch)

    def packed(x_CR: Tensor) -> Tensor:
        return pack.of(x_CR[..., None])[..., 0].where(pack.some_CP, 0)

    weight_CP = packed(weight_CR)
    rest_C1 = (weight_CR[owner].sum(1) - weight_CP.sum(1))[:, None]
    some = Batch(
        F.pad(packed(batch.items_CR), (0, 1)),
        F.pad(pack.some_CP, (0, 1)),
        None,
        F.pad(packed(label_CR), (0, 1)),
        torch.cat([weight_CP, rest_C1], 1),
        offset_CL=None if offset_CR is None else F.pad(packed(offset_CR), (0, 1)),
    )
    params = {k: v if len(v) == 1 else v[owner] for k, v in view.params.items() if k != "items"}
    params["items"] = F.pad(pack.of(view.params["items"]), (0, 0, 0, 1))
    ready, rng = view.objective.prepare(some), view.rng.take(owner)
    return replace(view, params=params, rng=rng, batch=some, objective_state=ready)


def _by_row(batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
    """The summed weight of each row's examples, their mean label and their mean offset, [C, R]."""
    index_CL, offset_CL = batch.index_CL, batch.offset_CL
    if index_CL is None:
        return batch.weight_CL, batch.label_CL, offset_CL

    def added(x_CL: Tensor) -> Tensor:
        return x_CL.new_zeros(batch.real_CR.shape).scatter_add(1, index_CL, x_CL)

    weight_CR = added(batch.weight_CL)
    least_CR = weight_CR.clamp(min=1e-30)
    label_CR = added(batch.weight_CL * batch.label_CL) / least_CR
    mean = None if offset_CL is None else added(batch.weight_CL * offset_CL) / least_CR
    return weight_CR, label_CR, mean


class _Contrast(torch.autograd.Function):
    """Sums weight_k (log sum_j exp(cos(one_k, two_j) / tau) - cos(one_k, two_k) / tau) over k.

    It takes a tile of rows at a time and never holds a matrix [R, R], of which autograd would hold
    four; for a client with 3,000 items they take 36 MB each.
    """

    @staticmethod
    def forward(
        ctx: Any, one_CRD: Tensor, two_CRD: Tensor, weight_CR: Tensor, bias_CR: Tensor, tau: float
    ) -> Tensor:
        size_a_CR1, a_CRD = normalised(one_CRD)
        size_b_CR1, b_CRD = normalised(two_CRD)
        weight_CR1 = weight_CR[..., None]
        loss_C = ((1 - (a_CRD * b_CRD).sum(2)) * weight_CR).sum(1) / tau
        log_CR, to_a, to_b = _log_sums(a_CRD, b_CRD, weight_CR1, bias_CR, tau)
        loss_C += (log_CR * weight_CR).sum(1)
        to_a.addcmul_(weight_CR1, b_CRD, value=-1 / tau)
        to_b.addcmul_(weight_CR1, a_CRD, value=-1 / tau)
        to_one = normalised_backward(to_a, a_CRD, size_a_CR1)
        ctx.save_for_backward(to_one, normalised_backward(to_b, b_CRD, size_b_CR1))
        return loss_C

    @staticmethod
    def backward(ctx: Any, grad_C: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        to_one, to_two = ctx.saved_tensors
        return grad_C[:, None, None] * to_one, grad_C[:, None, None] * to_two, None, None, None


def normalised(x_CRD: Tensor) -> tuple[Tensor, Tensor]:
    """The lengths of vectors, [C, R, 1], and the unit vectors."""
    size_CR1 = x_CRD.norm(dim=2, keepdim=True).clamp_(min=SHORTEST)
    return size_CR1, x_CRD / size_CR1


def normalised_backward(grad_CRD: Tensor, unit_CRD: Tensor, size_CR1: Tensor) -> Tensor:
    """The gradient by vectors from the gradient by their unit vectors, in place."""
    along_CR1 = (grad_CRD * unit_CRD).sum(2, keepdim=True)
    return grad_CRD.addcmul_(along_CR1, unit_CRD, value=-1).div_(size_CR1)


def _log_sums(
    a_CRD: Tensor, b_CRD: Tensor, weight_CR1: Tensor, bias_CR: Tensor, tau: float
) -> tuple[Tensor, Tensor, Tensor]:
    """log sum_j exp(a_k . b_j / tau + bias_j), [C, R], and the gradients of its weighted sum."""
    small = a_CRD.dtype == torch.float32 and a_CRD.shape[2] <= KERNEL_WIDTH
    if small and (kernels := _kernels(a_CRD.is_cuda, a_CRD.shape[1])):
        return kernels.log_sums(a_CRD, b_CRD, weight_CR1[..., 0], bias_CR, tau)
    log_CR, to_a = torch.empty_like(bias_CR), torch.empty_like(a_CRD)
    to_b, bias_C1R = torch.zeros_like(b_CRD.mT), bias_CR[:, None] * LOG2E
    n_clients, n_rows, _ = a_CRD.shape
    # On a GPU as many rows as fit, since each launch costs time; on a CPU the number depends on the
    # client alone, so that sums keep their order.
    many = max(8, AT_ONCE // (n_clients * n_rows) if a_CRD.is_cuda else TILE // n_rows)
    scaled_CRD = a_CRD * (LOG2E / tau)
    for at in range(0, a_CRD.shape[1], many):
        tile = slice(at, at + many)
        exp_CKR = torch.baddbmm(bias_C1R, scaled_CRD[:, tile], b_CRD.mT).exp2_()
        sum_CK1 = exp_CKR.sum(2, keepdim=True).clamp_(min=torch.finfo(a_CRD.dtype).tiny)
        log_CR[:, tile] = sum_CK1[..., 0].log()
        share_CK1 = weight_CR1[:, tile] / (sum_CK1 * tau)
        to_a[:, tile] = (exp_CKR @ b_CRD).mul_(share_CK1)
        to_b.baddbmm_((share_CK1 * a_CRD[:, tile]).mT, exp_CKR)
    return log_CR, to_a, to_b.mT.contiguous()


def _kernels(cuda: bool, n_rows: int) -> ModuleType | None:
    """The kernels of this machine for so many rows; the choice depends on the client alone."""
    if cuda:
        return _triton()
    return onednn if n_rows >= onednn.FEWEST and onednn.available() else None


@cache
def _triton() -> ModuleType | None:
    """Kernels that hold no matrix, if Triton is installed and finds the C compiler it needs."""
    if not find_spec("triton") or not (os.environ.get("CC") or which("gcc") or which("clang")):
        return None
    from covey.kernels import contrast

    return contrast


def held_similarities(n_rows: int) -> int:
    """How many similarities a contrast of all rows of a client holds at once."""
    return min(TILE, n_rows * n_rows)
