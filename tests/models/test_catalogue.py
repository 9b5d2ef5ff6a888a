"""Cross-entropy over all items: torch's own, however few logits are held at a time."""

import pytest
import torch
import torch.nn.functional as F

from covey.models.catalogue import catalogue_nll

C, P, ITEMS, D = 3, 7, 11, 4


@pytest.mark.parametrize("tables", [1, C])
@pytest.mark.parametrize("tile", [(1, 1), (2, ITEMS), (5, 3), (100, 100)])
def test_it_is_torchs(tables: int, tile: tuple[int, int]) -> None:
    make = torch.Generator().manual_seed(0)
    u = torch.randn(C, P, D, generator=make, dtype=torch.float64).requires_grad_()
    v = torch.randn(tables, ITEMS, D, generator=make, dtype=torch.float64).requires_grad_()
    target, weigh = (
        torch.randint(0, ITEMS, (C, P), generator=make),
        torch.rand(C, P, generator=make),
    )
    plain = F.cross_entropy((u @ v.mT).flatten(0, 1), target.flatten(), reduction="none").view(C, P)
    ours = catalogue_nll(u, v, target, tile)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    theirs = torch.autograd.grad((plain * weigh).sum(), (u, v))
    for mine, other in zip(torch.autograd.grad((ours * weigh).sum(), (u, v)), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tile", [None, (1, 1)])
def test_large_scores_stay_finite(tile: tuple[int, int] | None) -> None:
    u, v = (
        torch.tensor([[[300.0]]], requires_grad=True),
        torch.tensor([[[1.0], [-1.0]]], requires_grad=True),
    )
    nll = catalogue_nll(u, v, torch.tensor([[1]]), tile)
    assert nll.item() == pytest.approx(600.0)
    assert all(g.isfinite().all() for g in torch.autograd.grad(nll.sum(), (u, v)))
