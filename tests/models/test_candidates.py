"""Softmax among candidates: term by term, with large scores, doubled candidates and none at all."""

import pytest
import torch
from torch import Tensor

from covey.models.candidates import candidates_nll

C, P, R, K = 2, 3, 8, 4


def naive(s: Tensor, target: Tensor, own: Tensor, weight: Tensor, common: Tensor | None) -> Tensor:
    rows = []
    for c in range(C):
        for p in range(P):
            t = int(target[c, p])
            terms = [s[c, p, t].exp()]
            terms += [
                weight[c, p, k] * s[c, p, int(own[c, p, k])].exp()
                for k in range(K)
                if own[c, p, k] != t
            ]
            terms += (
                []
                if common is None
                else [common[c, r] * s[c, p, r].exp() for r in range(R) if r != t]
            )
            rows.append(torch.stack(terms).sum().log() - s[c, p, t])
    return torch.stack(rows).view(C, P)


@pytest.mark.parametrize("shared", [False, True])
def test_it_is_the_sum_over_candidates(shared: bool) -> None:
    g = torch.Generator().manual_seed(0)
    s = torch.randn(C, P, R, generator=g, dtype=torch.float64).requires_grad_()
    target, own = (
        torch.randint(0, R, (C, P), generator=g),
        torch.randint(0, R, (C, P, K), generator=g),
    )
    weight, weigh = (
        torch.randint(0, 3, (C, P, K), generator=g).double(),
        torch.rand(C, P, generator=g).double(),
    )
    common = torch.randint(0, 2, (C, R), generator=g).double() if shared else None
    if common is not None:
        common[1] = 0  # one client has none
    assert bool((own == target[..., None]).any()) and bool((weight == 0).any())
    both = [f(s, target, own, weight, common) for f in (naive, candidates_nll)]
    torch.testing.assert_close(*both, rtol=0, atol=1e-12)
    slopes = [torch.autograd.grad((x * weigh).sum(), s)[0] for x in both]
    torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)


def test_what_is_no_candidate_may_score_high() -> None:
    s = torch.tensor([[[0.0, 1.0, 1000.0]]], requires_grad=True)
    for common in (None, torch.tensor([[0.0, 1.0, 0.0]])):
        weight = torch.ones(1, 1, 1) if common is None else torch.zeros(1, 1, 1)
        nll = candidates_nll(s, torch.tensor([[0]]), torch.tensor([[[1]]]), weight, common)
        assert nll.item() == pytest.approx(1.3132617)
        assert torch.autograd.grad(nll.sum(), s)[0].tolist()[0][0] == pytest.approx(
            [-0.7310586, 0.7310586, 0.0]
        )
