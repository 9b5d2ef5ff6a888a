"""The kernels against the form of `methods/views.py` that holds a matrix; without a GPU in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor

from covey.methods import views

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the kernels are made
pytest.importorskip("triton", reason="Triton is not installed; it comes with torch for CUDA")
from covey.kernels import contrast

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def directions(many: list[int], n_rows: int, dim: int, aside: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two views of clients with so many rows, of which every third is set `aside`; weights and bars."""
    dice = torch.Generator().manual_seed(n_rows)
    one = torch.randn(len(many), n_rows, dim, generator=dice)
    two = one + 0.1 * torch.randn(len(many), n_rows, dim, generator=dice)
    place = torch.arange(n_rows)
    rows = (place < torch.tensor(many)[:, None]) & ((place % 3 > 0) | (not aside))
    weight = rows / rows.sum(1, keepdim=True).clamp(min=1)
    bar = torch.full_like(weight, -5.0).masked_fill(~rows, views.EXCLUDED)
    a, b = (views.unit(x)[1].to(DEVICE) for x in (one, two))
    return a, b, weight.to(DEVICE), bar.to(DEVICE)


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize(("many", "n_rows", "dim"), [([160, 70, 1, 0], 160, 32), ([31, 96], 96, 20), ([5], 32, 8)])
def test_kernels_equal_the_matrix(
    many: list[int], n_rows: int, dim: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, weight, bar = directions(many, n_rows, dim, aside)
    fused = contrast.log_sums(a, b, weight, bar, 0.2)
    monkeypatch.setattr(views, "_kernels", lambda: None)
    plain = views._log_sums(a, b, weight[..., None], bar, 0.2)
    real = (weight > 0).float()
    for name, x, y in zip(("log", "to a", "to b"), fused, plain, strict=True):
        part = real if x.dim() == 2 else torch.ones_like(x)  # the log of a row without weight is of no use
        torch.testing.assert_close(
            x * part, y * part, rtol=2e-5, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}"
        )
