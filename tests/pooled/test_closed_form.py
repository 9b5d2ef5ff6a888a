"""Popularity by hand, EASE against column-by-column regression."""

import numpy as np
import pytest
import torch

from covey.core.ragged import Ragged
from covey.evaluate.ranking import nothing
from covey.pooled.ease import Ease
from covey.pooled.popularity import Popularity

TRAIN = [[0, 1, 2], [1, 2], [1], [3, 1, 1], []]


def test_popularity_counts_users() -> None:
    model = Popularity().fit(Ragged.of(TRAIN), 5)
    assert model.score(torch.tensor([4, 0])).tolist() == [[1, 4, 2, 1, 0]] * 2
    assert model.score_items(torch.tensor([2]), torch.tensor([[1, 4]])).tolist() == [[4, 0]]
    assert model.items().shape == (5, 1)


def regression(x: np.ndarray, weight: float) -> np.ndarray:
    """Each item from all others by ridge regression, as EASE is defined."""
    b = np.zeros((x.shape[1], x.shape[1]))
    for j in range(x.shape[1]):
        rest = np.delete(np.arange(x.shape[1]), j)
        z = x[:, rest]
        b[rest, j] = np.linalg.solve(z.T @ z + weight * np.eye(len(rest)), z.T @ x[:, j])
    return b


@pytest.mark.parametrize("weight", [0.5, 300.0])
def test_ease_is_regression_on_the_other_items(
    weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.pooled.ease.GRAM_CHUNK", 64)  # several chunks of users
    rng = np.random.default_rng(0)
    x = (rng.random((30, 12)) < 0.3).astype(float)
    train = Ragged.of(
        [[*np.flatnonzero(row), *np.flatnonzero(row)[:1]] for row in x]
    )  # some rows twice
    model = Ease(weight).fit(train, 12)
    b = regression(x, weight)
    np.testing.assert_allclose(model.items().numpy(), b, atol=1e-6)
    users_C = torch.tensor([7, 0, 29])
    np.testing.assert_allclose(model.score(users_C).numpy(), (x @ b)[users_C], atol=1e-5)
    items_CL = torch.tensor([[3, 1], [0, 11], [5, 5]])
    assert torch.equal(
        model.score_items(users_C, items_CL), model.score(users_C).gather(1, items_CL)
    )


def test_ease_with_users_who_have_nothing() -> None:
    model = Ease(1.0).fit(Ragged.of(TRAIN), 5)
    assert model.score(torch.tensor([4])).tolist() == [[0.0] * 5]
    assert Ease(1.0).fit(nothing(2), 3).items().tolist() == [[0.0] * 3] * 3
