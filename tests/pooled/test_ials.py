"""iALS against dense normal equations, written out with all pairs."""

import numpy as np
import pytest
import torch

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.evaluate.ranking import nothing
from covey.pooled.ials import Ials

USERS, ITEMS, D = 25, 14, 3


def lists() -> tuple[np.ndarray, Ragged]:
    x = (np.random.default_rng(0).random((USERS, ITEMS)) < 0.3).astype(float)
    x[4] = 0  # a user who has nothing
    return x, Ragged.of([np.flatnonzero(row).tolist() for row in x])


def dense(x: np.ndarray, v: np.ndarray, unseen: float, decay: float) -> np.ndarray:
    """The minimum of the loss over each row's vector, with a weight for every pair."""
    out = []
    for row in x:
        weight = row + unseen
        a = (v.T * weight) @ v + decay * weight.sum() * np.eye(v.shape[1])
        out.append(np.linalg.solve(a, v.T @ row))
    return np.array(out)


def loss(x: np.ndarray, u: np.ndarray, v: np.ndarray, unseen: float, decay: float) -> float:
    s, weight = u @ v.T, x + unseen
    pairs = (x * (1 - s) ** 2).sum() + unseen * (s**2).sum()
    lengths = weight.sum(1) @ (u**2).sum(1) + weight.sum(0) @ (v**2).sum(1)
    return float(pairs + decay * lengths)


@pytest.mark.parametrize(("unseen", "decay"), [(0.1, 0.03), (0.5, 0.2)])
def test_each_side_is_the_minimum_given_the_other(
    unseen: float, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.pooled.ials.BLOCK", 100)  # several blocks
    x, train = lists()
    fitted = Ials(D, 1, unseen, decay).fit(train, ITEMS)
    v = fitted.item_ID.double().numpy()
    u = dense(x, v, unseen, decay)
    assert not np.abs(u[4]).any()
    scores = fitted.score(torch.arange(USERS))
    np.testing.assert_allclose(scores, u @ v.T, atol=2e-5)
    picked = torch.tensor([[3, 1]])
    torch.testing.assert_close(fitted.score_items(torch.tensor([7]), picked), scores[7][picked])
    # One more sweep: the items are the minimum for these users.
    more = Ials(D, 2, unseen, decay).fit(train, ITEMS).item_ID.numpy()
    np.testing.assert_allclose(more, dense(x.T, u, unseen, decay), atol=2e-5)
    assert loss(x, u, more, unseen, decay) < loss(x, u, v, unseen, decay)


def test_it_learns_groups_and_is_deterministic() -> None:
    train = Ragged.of([[i for i in range(u % 2, 12, 2) if i != u % 12] for u in range(24)])
    model = Ials(4, 6, 0.1, 0.01)
    fitted = model.fit(train, 12)
    left_out = fitted.score(torch.arange(24))[torch.arange(24), torch.arange(24) % 12]
    other = fitted.score(torch.arange(24))[torch.arange(24), (torch.arange(24) + 1) % 12]
    assert bool((left_out > other + 0.3).all())
    assert torch.equal(model.fit(train, 12).item_ID, fitted.item_ID)
    assert not model.fit(nothing(2), 3).score(torch.arange(2)).any()


def test_options_are_positive() -> None:
    with pytest.raises(CoveyError, match="decay = 0"):
        Ials(decay=(0.1, 0.0))


def test_a_rough_model_has_half_the_width() -> None:
    _, train = lists()
    for rough, dim in ((False, 5), (True, 3)):
        assert Ials(5).solver(train, ITEMS, rough)(Ials(5)).item_ID.shape == (ITEMS, dim)
    whole = Ials(5).solver(train, ITEMS)(Ials(5))
    assert torch.equal(whole.item_ID, Ials(5).fit(train, ITEMS).item_ID)
