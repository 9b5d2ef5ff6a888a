"""The Triton kernels against `methods/views.py`; without a GPU, in Triton's interpreter."""

import os

import pytest
import torch

from covey.methods import views
from two_views import assert_equal_sums, directions

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the kernels are made
pytest.importorskip("triton", reason="Triton is not installed; it comes with torch for CUDA")
from covey.kernels import contrast

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize(
    ("many", "n_rows", "dim"), [([160, 70, 1, 0], 160, 32), ([31, 96], 96, 20), ([5], 32, 8)]
)
def test_kernels_equal_the_matrix(
    many: list[int], n_rows: int, dim: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, weight, bar = (x.to(DEVICE) for x in directions(many, n_rows, dim, aside))
    fused = contrast.log_sums(a, b, weight, bar, 0.2)
    monkeypatch.setattr(views, "_kernels", lambda *_: None)
    assert_equal_sums(fused, views._log_sums(a, b, weight[..., None], bar, 0.2), weight)
