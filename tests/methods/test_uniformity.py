"""The uniformity penalty: its value by hand, its effect on a table, and the conformance suite."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.uniformity import Uniformity, uniformity
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

F64 = torch.float64


class TestUniformity(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        part = Uniformity(0.5)
        return Method(
            NCF(4, (4, 3), scale=0.1), Bce(), catalogue, Local("adam", 0.01, epochs=2), (part,)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        return replace(full, mechanisms=(Uniformity(0.0),)), replace(full, mechanisms=())


def test_by_hand() -> None:  # Eq. 12
    """Two columns: equal up to scale and shift, opposite, and without correlation."""
    column = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=F64)
    across = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=F64)
    tables = [
        torch.stack(pair, 1)
        for pair in ((column, 3 * column + 7), (column, -column), (column, across))
    ]
    assert uniformity(torch.stack(tables)).tolist() == pytest.approx([1, 1, math.sqrt(2) / 2])


def test_it_is_the_norm_of_numpy_s_correlations() -> None:
    table_CID = Rng.of(0, 0, torch.arange(2)).normal(30, 5, dtype=F64)
    want = [np.linalg.norm(np.corrcoef(one.numpy(), rowvar=False)) / 5 for one in table_CID]
    assert uniformity(table_CID).tolist() == pytest.approx(want)


def test_less_of_it_is_a_flatter_spectrum() -> None:  # Fig. 3b
    rng = Rng.of(0, 0, torch.arange(1))
    table_CID = rng.normal(40, 4, dtype=F64) @ torch.diag(torch.tensor([8.0, 1, 1, 1], dtype=F64))
    table_CID = table_CID @ rng.fold(1).normal(4, 4, dtype=F64)

    def steep(x_CID: torch.Tensor) -> float:
        x_ID = x_CID[0] - x_CID[0].mean(0)
        values = torch.linalg.svdvals(x_ID / x_ID.norm(dim=0))
        return float(values[0] / values[-1])

    before, leaf = steep(table_CID), table_CID.clone().requires_grad_()
    for _ in range(100):
        (grad,) = torch.autograd.grad(uniformity(leaf).sum(), leaf)
        leaf = (leaf - 20 * grad).detach().requires_grad_()
    assert steep(leaf.detach()) < before / 2


def test_an_empty_table_has_no_slope_to_infinity() -> None:
    leaf = torch.zeros(1, 5, 3, dtype=F64, requires_grad=True)
    (grad,) = torch.autograd.grad(uniformity(leaf).sum(), leaf)
    assert torch.isfinite(grad).all()


def test_bad_options() -> None:
    with pytest.raises(CoveyError, match="negative"):
        Uniformity(-1.0)


@pytest.mark.parametrize(
    ("values", "rank", "first"),
    [
        ([2.0, 2.0, 2.0], 3.0, 1 / 3),
        ([3.0, 1.0, 0.0], math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)), 0.75),
    ],
)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_it_tells_how_flat_the_spectrum_is(
    weight: float, values: list[float], rank: float, first: float
) -> None:
    turned = torch.linalg.qr(Rng.of(0, 0, torch.arange(1)).normal(5, 5, dtype=F64)[0]).Q[:, :3]
    table_ID = turned @ torch.diag(torch.tensor(values, dtype=F64))
    said = Uniformity(weight).end_round(SimpleNamespace(public={"items": table_ID}, state={}))  # type: ignore[arg-type]
    assert float(said["tell/rank"]) == pytest.approx(rank) and float(
        said["tell/first"]
    ) == pytest.approx(first)
