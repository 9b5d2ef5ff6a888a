"""Settings that validation chooses, against a search that fits every one of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from covey.core.ragged import Ragged
from covey.data.split import Split
from covey.evaluate.metrics import EvaluateConfig, summarise
from covey.evaluate.ranking import nothing
from covey.pooled import choice, ease
from covey.pooled.choice import fit_chosen
from covey.pooled.common import evaluate_pooled
from covey.pooled.ease import Ease
from covey.pooled.ials import Ials

GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)


def split(users: int = 120, items: int = 30) -> Split:
    """Users of two kinds with some noise; the last two items of each are held out."""
    rng = np.random.default_rng(1)
    rows = []
    for user in range(users):
        likes = np.where(np.arange(items) % 2 == user % 2, 0.6, 0.15) / np.arange(1, items + 1)
        rows.append(rng.choice(items, 8, replace=False, p=likes / likes.sum()).tolist())
    cut = (slice(0, 6), slice(6, 7), slice(7, 8))
    return Split(users, items, *(Ragged.of([row[part] for row in rows]) for part in cut))


CONFIG = EvaluateConfig(metrics=("hit@1", "ndcg@5"), select="ndcg@5")


def test_the_best_strength_on_validation_is_taken() -> None:
    data = split()
    value = {}
    for weight in GRID:
        found = evaluate_pooled(Ease(weight).fit(data.train, 30), data, CONFIG, None, ("valid",))
        value[weight] = summarise(found["valid"])["ndcg@5"]
    fitted, best = fit_chosen(Ease(GRID), data, CONFIG)
    assert isinstance(best, Ease) and best.weight == max(value, key=value.__getitem__)
    assert best.weight not in (GRID[0], GRID[-1])  # else the search proves little
    assert torch.equal(fitted.items(), best.fit(data.train, 30).items())


def test_one_value_is_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "held_out_parts", None)  # validation is not looked at
    assert fit_chosen(Ease(7.0), split(), CONFIG)[1] == Ease(7.0)
    assert fit_chosen(Ials(4, 2, 0.2), split(), CONFIG)[1] == Ials(4, 2, 0.2)


def test_without_validation_a_tenth_of_train_chooses() -> None:
    data = split()
    bare = Split(data.n_users, 30, data.train, nothing(data.n_users), data.test)
    fitted, best = fit_chosen(Ials(8, 4, (0.05, 0.5), (0.01, 0.3)), bare, CONFIG)
    assert isinstance(best, Ials) and isinstance(best.decay, float)
    assert len(fitted.train.values) == len(data.train.values)  # the final model has all items
    part = choice._tenth(bare)
    assert len(part.train.values) + len(part.valid.values) == len(data.train.values)
    assert 0.05 < len(part.valid.values) / len(data.train.values) < 0.15


@pytest.mark.parametrize("peak", range(7))
def test_a_climb_finds_the_only_peak(peak: int) -> None:
    seen: list[int] = []

    def value(place: int) -> float:
        seen.append(place)
        return -abs(place - peak)

    assert choice._peak(value, 7) == peak
    assert len(seen) == len(set(seen)) <= 7


@pytest.mark.parametrize("weight", [0.5, 200.0])
def test_few_users_give_the_same_weights(weight: float, monkeypatch: pytest.MonkeyPatch) -> None:
    train, used = split(20, 60).train, list[str]()

    def spy(name: str) -> Callable[..., torch.Tensor]:
        real = getattr(ease, name)
        return lambda *args: (used.append(name), real(*args))[1]

    for name in ("_by_items", "_by_users"):
        monkeypatch.setattr(ease, name, spy(name))
    by_items = Ease(weight).fit(train, 60).weight_II
    monkeypatch.setattr(ease, "SMALL", 10)
    torch.testing.assert_close(Ease(weight).fit(train, 60).weight_II, by_items, atol=1e-6, rtol=0)
    assert used == ["_by_items", "_by_users"] and bool(by_items.any())


def test_sparse_and_dense_products_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    train = split().train
    dense = ease.gram(train, 30)
    monkeypatch.setattr(ease, "SPARSE", 0)
    assert torch.equal(ease.gram(train, 30), dense) and dense.dtype == torch.float64


def test_with_almost_no_data_the_middle_is_taken() -> None:
    tiny = Split(2, 5, Ragged.of([[1], [3]]), nothing(2), Ragged.of([[2], []]))
    assert fit_chosen(Ease(GRID), tiny, CONFIG)[1] == Ease(10.0)
    assert fit_chosen(Ials(2, 2, 0.1, (0.1, 0.2)), tiny, CONFIG)[1] == Ials(2, 2, 0.1, 0.2)


@pytest.mark.parametrize("shortlist", [2, 6])
def test_settings_of_ials_are_compared_on_validation(
    shortlist: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "SHORTLIST", shortlist)
    data, model = split(), Ials(8, 4, (0.05, 0.5), (0.003, 0.03, 0.3))
    value = {}
    for option in model.alternatives():
        found = evaluate_pooled(option.fit(data.train, 30), data, CONFIG, None, ("valid",))
        value[option] = summarise(found["valid"])["ndcg@5"]
    fitted, best = fit_chosen(model, data, CONFIG)
    assert len(set(value.values())) > 3
    assert value[best] > min(value.values()) and (  # type: ignore[index]
        shortlist == 2 or value[best] == max(value.values())  # type: ignore[index]
    )
    assert torch.equal(fitted.items(), best.fit(data.train, 30).items())
