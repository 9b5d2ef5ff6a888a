"""The contrast between two views, which CL4FedRec and SimGCL share."""

import math

import pytest
import torch
import torch.nn.functional as F

from covey.contract.examples import Batch
from covey.core.rng import Rng
from covey.methods import views
from covey.methods.views import (
    contrasted_rows,
    item_loss,
    noise,
    pack_rows,
    packed_item_loss,
    packs,
)

F64 = torch.float64


def test_item_loss() -> None:  # Eq. 10
    """Two items count, a third row is padding; tau = 1."""
    one = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]]], dtype=F64)
    two = torch.tensor([[[3.0, 0.0], [1.0, 1.0], [7.0, 1.0]]], dtype=F64)
    rows = torch.tensor([[True, True, False]])
    half = math.sqrt(0.5)
    first = -math.log(math.exp(1) / (math.exp(1) + math.exp(half)))
    second = -math.log(math.exp(half) / (math.exp(0) + math.exp(half)))
    assert item_loss(one, two, rows, 1.0).tolist() == pytest.approx([(first + second) / 2])
    assert item_loss(one, two, torch.zeros_like(rows), 1.0).tolist() == [0]


def test_item_loss_as_a_sum() -> None:  # Eq. 10 as printed
    rng = Rng.of(0, 0, torch.arange(2))
    one, two = rng.fold(1).normal(5, 3, dtype=F64), rng.fold(2).normal(5, 3, dtype=F64)
    rows = torch.tensor([[True, True, True, False, False], [False] * 5])
    mean_C, sum_C = item_loss(one, two, rows, 0.2), item_loss(one, two, rows, 0.2, "sum")
    assert sum_C.tolist() == pytest.approx([3 * float(mean_C[0]), 0])


def test_few_items_are_the_same_items() -> None:
    """With rows set aside: clients with none, one, a quarter, half and all of their rows."""
    rng = Rng.of(0, 0, torch.arange(5))
    v_CRD = rng.normal(16, 3, dtype=F64).requires_grad_()
    one_CRD, two_CRD = (noise(v_CRD.detach(), 0.5, rng.fold(k)) for k in (1, 2))
    rows_CR = rng.fold(3).uniform(16).argsort(1) < torch.tensor([0, 1, 4, 7, 16])[:, None]
    weights = torch.tensor([1.0, -2.0, 0.5, 3.0, 1.0], dtype=F64)
    whole_C = item_loss(v_CRD + one_CRD, v_CRD + two_CRD, rows_CR, 0.2)
    ready = pack_rows(rows_CR)
    for pack in packs(pack_rows(rows_CR)):
        ready |= {f"{pack.key}/one": pack.of(one_CRD), f"{pack.key}/two": pack.of(two_CRD)}
    packed_C = packed_item_loss(v_CRD, ready, 0.2, "mean")
    torch.testing.assert_close(packed_C, whole_C)
    (whole,) = torch.autograd.grad(whole_C @ weights, v_CRD, retain_graph=True)
    (grad,) = torch.autograd.grad(packed_C @ weights, v_CRD)
    torch.testing.assert_close(grad, whole)


def test_which_items_are_contrasted() -> None:
    """Two examples of row 0, one positive; a negative of row 1; row 2 weighs 0; 3 is padding."""
    index, label, weight = (
        torch.tensor([[0, 0, 1, 2]]),
        torch.tensor([[1.0, 0, 0, 1]]),
        torch.tensor([[1.0, 1, 1, 0]]),
    )
    real = torch.tensor([[True, True, True, False]])
    batch = Batch(torch.zeros(1, 4).long(), real, index, label, weight)
    assert contrasted_rows(batch, "all").tolist() == [[True, True, False, False]]
    assert contrasted_rows(batch, "positives").tolist() == [[True, False, False, False]]


@pytest.mark.parametrize("tau", [0.2, 0.01])
def test_item_loss_in_tiles_is_the_plain_one(tau: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "TILE", 100)
    rng = Rng.of(0, 0, torch.arange(3))
    v_CRD = rng.normal(37, 4, dtype=F64).requires_grad_()
    one_CRD, two_CRD = (
        v_CRD + rng.fold(1).normal(37, 4, dtype=F64) / 9,
        v_CRD + rng.fold(2).normal(37, 4, dtype=F64) / 9,
    )
    rows_CR = rng.fold(3).uniform(37) < 0.8
    cosine_CRR = F.normalize(one_CRD, dim=2) @ F.normalize(two_CRD, dim=2).mT / tau
    log_CR = (
        cosine_CRR.masked_fill(~rows_CR[:, None], float("-inf"))
        .log_softmax(2)
        .diagonal(dim1=1, dim2=2)
    )
    plain_C = -(log_CR.where(rows_CR, 0)).sum(1) / rows_CR.sum(1)
    tiled_C = item_loss(one_CRD, two_CRD, rows_CR, tau)
    torch.testing.assert_close(tiled_C, plain_C)
    weights = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
    (plain,) = torch.autograd.grad(plain_C @ weights, v_CRD, retain_graph=True)
    (tiled,) = torch.autograd.grad(tiled_C @ weights, v_CRD)
    torch.testing.assert_close(tiled, plain)
