"""The supervised contrast in closed form: against autograd, by hand, and in the sampled form."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.methods import supcon
from covey.methods.supcon import KnownGradient, members, printed, published

TAU, TAU0 = 0.1, 0.5


def by_autograd(table_CID: Tensor, category_I: Tensor, tau: float, tau0: float) -> Tensor:
    """The loss as the published code computes it, through all pairs."""
    unit = F.normalize(table_CID, dim=-1)
    s_CII = unit @ unit.mT / tau
    s_CII = s_CII - s_CII.max(-1, keepdim=True).values.detach()
    other_II = ~torch.eye(len(category_I), dtype=torch.bool)
    log_CI = ((s_CII.exp() * other_II).sum(-1) + 1e-6).log()
    same_II = ((category_I[:, None] == category_I) & other_II).to(table_CID)
    q_CI = ((s_CII - log_CI[..., None]) * same_II).sum(-1) / (same_II.sum(-1) + 1e-6)
    return -tau / tau0 * q_CI.mean(1)


def as_printed(table_CID: Tensor, category_I: Tensor, tau: float) -> Tensor:
    """Eq. 8, item by item."""
    s_CII = table_CID @ table_CID.mT / tau
    total = table_CID.new_zeros(len(table_CID))
    for i, mine in enumerate(category_I.tolist()):
        others = [a for a in range(len(category_I)) if a != i]
        same = [z for z in others if int(category_I[z]) == mine]
        if same:
            ratio_CZ = (s_CII[:, i, same] - s_CII[:, i, others].logsumexp(-1, keepdim=True)).exp()
            total = total - ratio_CZ.mean(-1).log()
    return total


def world(items: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(items)
    table_CID = torch.randn(3, items, 6, dtype=torch.float64)
    category_I = torch.randint(0, 5, (items,))
    category_I[0] = 5  # a category of one item
    return table_CID.requires_grad_(), category_I


@pytest.mark.parametrize(
    ("items", "tile", "held"), [(50, 256, 9999), (50, 7, 9999), (50, 7, 0), (200, 128, 9999)]
)
def test_published_slope_is_that_of_the_formula(
    items: int, tile: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supcon, "TILE", tile)
    monkeypatch.setattr(supcon, "HELD", held)
    table_CID, category_I = world(items)
    naive_C = by_autograd(table_CID, category_I, TAU, TAU0)
    value_C, slope_CID = published(table_CID.detach(), members(category_I), TAU, TAU0)
    torch.testing.assert_close(value_C, naive_C, rtol=1e-12, atol=1e-12)
    (naive,) = torch.autograd.grad(naive_C.sum(), table_CID)
    torch.testing.assert_close(slope_CID, naive, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tile", [256, 7])
@pytest.mark.parametrize(
    "tau", [0.5, 0.02]
)  # at 0.02 exponentials span hundreds of orders of magnitude
def test_printed_slope_is_that_of_the_formula(
    tau: float, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supcon, "TILE", tile)
    table_CID, category_I = world(40)
    value_C, slope_CID = printed(table_CID.detach(), members(category_I), tau)
    assert bool(slope_CID.isfinite().all()) and bool(value_C.isfinite().all())
    if tau == 0.5:
        naive_C = as_printed(table_CID, category_I, tau)
        (naive,) = torch.autograd.grad(naive_C.sum(), table_CID)
        torch.testing.assert_close(value_C, naive_C, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(slope_CID, naive, rtol=1e-9, atol=1e-10)


def test_two_pairs_by_hand() -> None:
    """Items 0 and 1 point east and are a category; 2 and 3 point north and are the other."""
    table_CID = torch.tensor(
        [[[2.0, 0.0], [5.0, 0.0], [0.0, 1.0], [0.0, 3.0]]], dtype=torch.float64
    ).repeat(2, 1, 1)
    member_KI = members(torch.tensor([0, 0, 1, 1]))
    value_C, _ = published(table_CID, member_KI, 0.5, 0.5)
    # s = 2 to the partner, 0 to the others: -log(e^2 / (e^2 + 1 + 1)) for each item, tau = tau_0
    assert value_C.tolist() == pytest.approx([math.log1p(2 * math.exp(-2))] * 2, rel=1e-5)
    value_C, _ = printed(table_CID, member_KI, 0.5)
    # Products over tau: 20 between 0 and 1, 6 between 2 and 3, 0 across; a sum over four items.
    hand = 2 * math.log1p(2 * math.exp(-20)) + 2 * math.log1p(2 * math.exp(-6))
    assert value_C.tolist() == pytest.approx([hand] * 2, rel=1e-9)


def test_a_sample_of_everything_is_exact() -> None:
    table_CID, category_I = world(30)
    table_CID = table_CID.detach()
    everything_CS = torch.arange(30).expand(3, -1)
    sampled = published(table_CID, members(category_I), TAU, TAU0, everything_CS)
    for ours, exact in zip(
        sampled, published(table_CID, members(category_I), TAU, TAU0), strict=True
    ):
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-12)


def test_samples_are_right_on_average() -> None:
    """The denominators are unbiased, so slopes of many samples average to nearly the exact one."""
    table_CID, category_I = world(60)
    table_CID = table_CID.detach()[:1].expand(2000, -1, -1)
    exact_CID = published(table_CID[:2], members(category_I), 0.5, TAU0)[1]
    drawn_CS = torch.randint(0, 60, (2000, 20), generator=torch.Generator().manual_seed(0))
    slopes_CID = published(table_CID, members(category_I), 0.5, TAU0, drawn_CS)[1]
    assert float((slopes_CID.mean(0) - exact_CID[0]).norm() / exact_CID[0].norm()) < 0.05
    assert float((slopes_CID[0] - exact_CID[0]).norm() / exact_CID[0].norm()) > 0.05


def test_a_known_slope_is_handed_on() -> None:
    table_CID = torch.randn(2, 3, 4, requires_grad=True)
    slope_CID = torch.randn(2, 3, 4)
    value_C = KnownGradient.apply(table_CID, torch.tensor([1.0, 2.0]), slope_CID)
    (grad,) = torch.autograd.grad((value_C * torch.tensor([3.0, -1.0])).sum(), table_CID)
    assert value_C.tolist() == [1.0, 2.0]
    torch.testing.assert_close(grad, slope_CID * torch.tensor([3.0, -1.0])[:, None, None])


@pytest.mark.parametrize("reading", ["published", "printed"])
def test_contrast_pulls_a_category_together(reading: str) -> None:
    torch.manual_seed(0)
    table_CID = torch.randn(2, 12, 4)
    category_I = torch.arange(12) % 3
    same_II = category_I[:, None] == category_I

    def closeness() -> float:
        unit = F.normalize(table_CID, dim=-1)
        s_CII = unit @ unit.mT
        return float(s_CII[:, same_II].mean() - s_CII[:, ~same_II].mean())

    before = closeness()
    for _ in range(50):
        member_KI = members(category_I)
        if reading == "published":
            table_CID = table_CID - published(table_CID, member_KI, 0.5, 0.5)[1]
        else:
            table_CID = table_CID - 0.02 * printed(table_CID, member_KI, 0.5)[1]
    assert closeness() > before + 0.25
