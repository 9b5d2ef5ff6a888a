"""MF and NCF: the pairs they are trained on, and whether they learn."""

from dataclasses import replace

import pytest
import torch

from covey.core.ragged import Ragged
from covey.pooled.common import FitRequest, Fitted, shuffled
from covey.pooled.mf import PooledMF
from covey.pooled.ncf import PooledNCF
from covey.pooled.pairs import pairs

ITEMS = 12
MODELS = [
    PooledMF(dim=8, lr=0.03, epochs=20, batch=64),
    PooledNCF(dim=8, hidden=(8, 4), lr=0.03, epochs=20, batch=64),
]


def checkerboard() -> Ragged:
    """Even users like even items, odd users odd ones; each lacks one of its kind."""
    return Ragged.of(
        [[i for i in range(u % 2, ITEMS, 2) if i // 2 != u // 2 % 6] for u in range(24)]
    )


def test_pairs_are_positives_and_unknown_items() -> None:
    train, avoid = Ragged.of([[0, 3], [], [1]]), Ragged.of([[0, 3, 4], [2], [1]])
    users_T, items_T, label_T = pairs(train, avoid, 6, 4, seed=1, epoch=1)
    assert label_T.tolist() == [1.0] * 3 + [0.0] * 12
    assert users_T.tolist() == [0, 0, 2] + [0] * 8 + [2] * 4
    assert items_T[:3].tolist() == [0, 3, 1]
    assert set(items_T[3:11].tolist()) <= {1, 2, 5}
    assert set(items_T[11:].tolist()) <= {0, 2, 3, 4, 5}


def test_negatives_are_uniform_and_fresh() -> None:
    train, avoid = Ragged.of([[0] * 5000]), Ragged.of([[0, 4, 5, 9]])
    draws = [pairs(train, avoid, 10, 4, seed=1, epoch=e)[1][5000:] for e in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    counts = torch.bincount(draws[0], minlength=10)
    assert counts[[0, 4, 5, 9]].sum() == 0
    assert ((counts[[1, 2, 3, 6, 7, 8]] - 20000 / 6).abs() < 5 * (20000 / 6) ** 0.5).all()


def test_a_user_who_knows_everything_has_no_negatives() -> None:
    users_T, _, label_T = pairs(
        Ragged.of([[0, 1, 2], [1]]), Ragged.of([[0, 1, 2], [1]]), 3, 2, seed=0, epoch=1
    )
    assert users_T[label_T == 0].tolist() == [1, 1]


def test_shuffled() -> None:
    assert sorted(shuffled(50, 3, 1).tolist()) == list(range(50))
    assert torch.equal(shuffled(50, 3, 1), shuffled(50, 3, 1))
    assert not torch.equal(shuffled(50, 3, 1), shuffled(50, 3, 2))


@pytest.mark.parametrize("model", MODELS, ids=["mf", "ncf"])
def test_learns_a_checkerboard(model: PooledMF | PooledNCF) -> None:
    kind = Ragged.of([list(range(u % 2, ITEMS, 2)) for u in range(24)])
    fitted = replace(model, epochs=60).fit(FitRequest(checkerboard(), kind, ITEMS, seed=0))
    score_NI = fitted.score(torch.arange(24))
    same_NI = (torch.arange(24)[:, None] - torch.arange(ITEMS)) % 2 == 0
    worst_N, best_N = score_NI[same_NI].view(24, 6).amin(1), score_NI[~same_NI].view(24, 6).amax(1)
    assert (worst_N > best_N + 1).all()  # also the item that a user lacks


@pytest.mark.parametrize("model", MODELS, ids=["mf", "ncf"])
def test_some_items_are_scored_as_among_all(
    model: PooledMF | PooledNCF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.pooled.ncf.CPU_LAYER", 200)  # several chunks of users
    fitted = model.fit(FitRequest(checkerboard(), checkerboard(), ITEMS, seed=0))
    users_C, items_CL = torch.tensor([5, 0, 17]), torch.tensor([[3, 1], [0, 11], [5, 5]])
    all_CI = fitted.score(users_C)
    assert all_CI.shape == (3, ITEMS)
    torch.testing.assert_close(fitted.score_items(users_C, items_CL), all_CI.gather(1, items_CL))
    assert fitted.items().shape == (ITEMS, 8)


@pytest.mark.parametrize("model", MODELS, ids=["mf", "ncf"])
def test_epochs_are_reported_and_can_be_stopped(model: PooledMF | PooledNCF) -> None:
    seen: list[tuple[int, Fitted]] = []

    def on_epoch(epoch: int, fitted: Fitted) -> bool:
        seen.append((epoch, fitted))
        return epoch == 3

    train, users_C = checkerboard(), torch.arange(24)
    last = model.fit(FitRequest(train, train, ITEMS, seed=0, on_epoch=on_epoch))
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    assert torch.equal(last.score(users_C), seen[-1][1].score(users_C))
    assert not torch.equal(seen[0][1].score(users_C), seen[1][1].score(users_C)), (
        "a copy, not the model in training"
    )
    assert not last.score(users_C).requires_grad


@pytest.mark.parametrize("model", MODELS, ids=["mf", "ncf"])
def test_the_seed_decides(model: PooledMF | PooledNCF) -> None:
    train, users_C = checkerboard(), torch.arange(24)
    one, same, other = (
        model.fit(FitRequest(train, train, ITEMS, seed)).score(users_C) for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.allclose(one, other)
