"""The oneDNN kernel against the form of `methods/views.py` for all machines."""

from typing import Any

import pytest
import torch
from torch import Tensor

from covey.kernels import onednn
from covey.methods import views
from two_views import assert_equal_sums, directions

pytestmark = pytest.mark.skipif(
    not onednn.available(), reason="this machine or this torch has no products by oneDNN"
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each client that the kernel was called for."""
    seen: list[int] = []
    real = onednn.log_sums

    def watched(a_CRD: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        seen.extend([a_CRD.shape[1]] * len(a_CRD))
        return real(a_CRD, *rest)

    monkeypatch.setattr(onednn, "log_sums", watched)
    return seen


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize(
    ("many", "n_rows", "dim"),
    [([640, 570, 33, 1, 0], 640, 32), ([512], 512, 20), ([1500, 1024], 1536, 8)],
)
def test_equal_to_the_products_of_every_machine(
    many: list[int], n_rows: int, dim: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one tile and in several, with padding, and of a client without any row."""
    a, b, weight, bar = directions(many, n_rows, dim, aside)
    made = onednn.log_sums(a, b, weight, bar, 0.2)
    monkeypatch.setattr(views, "_kernels", lambda *_: None)
    assert_equal_sums(made, views._log_sums(a, b, weight[..., None], bar, 0.2), weight)


def test_long_lists_take_it_and_short_ones_do_not(asked: list[int]) -> None:
    for n_rows in (onednn.FEWEST - views.REGISTERS, onednn.FEWEST):
        a, b, weight, _ = directions([n_rows] * 2, n_rows, 4, aside=False)
        views.item_loss(a, b, weight > 0, 0.2)
    assert asked == [onednn.FEWEST] * 2


def test_no_other_precision(asked: list[int]) -> None:
    a, b, weight, _ = directions([onednn.FEWEST], onednn.FEWEST, 4, aside=False)
    views.item_loss(a.double(), b.double(), weight > 0, 0.2)
    assert asked == []


def test_a_client_is_the_same_alone_and_among_others() -> None:
    a, b, weight, bar = directions([640, 570, 530], 640, 32, aside=True)
    together = onednn.log_sums(a, b, weight, bar, 0.2)
    for client in range(3):
        alone = onednn.log_sums(*(x[client : client + 1] for x in (a, b, weight, bar)), 0.2)
        assert all(torch.equal(x[0], y[client]) for x, y in zip(alone, together))
