"""Evaluation of pooled models: the same figures as from the scores, and selection on validation."""

import pytest
import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.data import Split
from covey.evaluate.metrics import EvaluateConfig
from covey.evaluate.ranking import merged, nothing
from covey.pooled.common import FitRequest, Fitted, evaluate_pooled, fit_selected
from covey.pooled.mf import FittedMF, PooledMF
from covey.pooled.popularity import Popularity
from from_scores import evaluate_scores

USERS, ITEMS = 9, 250


def some(sizes: list[int], seed: int) -> list[list[int]]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randperm(ITEMS, generator=g)[:n].tolist() for n in sizes]


def split_of(valid: list[int], test: list[int]) -> Split:
    """Three parts without a common item."""
    rows = some([40 + v + t for v, t in zip(valid, test)], 0)
    return Split(
        USERS,
        ITEMS,
        train=Ragged.of([row[:40] for row in rows]),
        valid=Ragged.of([row[40 : 40 + v] for row, v in zip(rows, valid)]),
        test=Ragged.of([row[40 + v :] for row, v in zip(rows, valid)]),
    )


def model() -> FittedMF:
    g = torch.Generator().manual_seed(1)
    return FittedMF(torch.randn(USERS, 4, generator=g), torch.randn(ITEMS, 4, generator=g))


@pytest.mark.parametrize("chunk", [None, 1, 4, 100])
@pytest.mark.parametrize("seen", ["filtered", "kept"])
def test_full_is_evaluate_scores(chunk: int | None, seen: str) -> None:
    split, config = split_of([3] * USERS, list(range(USERS))), EvaluateConfig(seen=seen)
    score_NI = model().score(torch.arange(USERS))
    found = evaluate_pooled(model(), split, config, chunk=chunk)
    hidden = {"valid": split.train, "test": merged(split.train, split.valid)}
    for part in ("valid", "test"):
        expected = evaluate_scores(score_NI, getattr(split, part), hidden[part], config)
        for metric in config.metrics:
            torch.testing.assert_close(found[part][metric], expected[metric], equal_nan=True)
    assert found["test"]["recall@20"].isnan().tolist() == [True] + [False] * (USERS - 1)


def test_the_test_hides_validation_items() -> None:
    score = FittedMF(torch.ones(1, 1), torch.tensor([[5.0], [4.0], [3.0], [2.0]]))
    split = Split(
        USERS, ITEMS, train=Ragged.of([[0]]), valid=Ragged.of([[1]]), test=Ragged.of([[2]])
    )
    found = evaluate_pooled(score, split, EvaluateConfig(metrics=("mrr@3",)))
    assert found["valid"]["mrr@3"].tolist() == [1.0]  # item 0 is hidden
    assert found["test"]["mrr@3"].tolist() == [1.0]  # and item 1


def test_sampled_is_evaluate_scores() -> None:
    split = split_of([1] * USERS, [1] * (USERS - 1) + [0])
    config = EvaluateConfig(candidates="sampled", metrics=("hit@5", "ndcg@5"))
    candidates = {
        "valid": torch.tensor(some([30] * USERS, 2)),
        "test": torch.tensor(some([30] * USERS, 3)),
    }
    found = evaluate_pooled(model(), split, config, candidates, chunk=4)
    score_NI = model().score(torch.arange(USERS))
    for part in ("valid", "test"):
        expected = evaluate_scores(
            score_NI, getattr(split, part), split.train, config, candidates[part]
        )
        torch.testing.assert_close(found[part]["ndcg@5"], expected["ndcg@5"], equal_nan=True)
    assert found["test"]["hit@5"][-1].isnan()
    with pytest.raises(CoveyError, match="the test part has no candidates"):
        evaluate_pooled(model(), split, config, {"valid": candidates["valid"]})


def test_evaluation_leaves_the_model_alone() -> None:
    split = split_of([1] * USERS, [1] * USERS)
    popular = Popularity().fit(split.train, ITEMS)
    before = popular.count_I.clone()
    for chunk in (1, 9):
        evaluate_pooled(popular, split, EvaluateConfig(), chunk=chunk)
    assert torch.equal(popular.count_I, before)


class Scripted:
    """Training in which the held-out item comes first in the given epochs only."""

    def __init__(self, good: set[int], epochs: int) -> None:
        self.good, self.epochs = good, epochs

    def fit(self, request: FitRequest) -> Fitted:
        for epoch in range(1, self.epochs + 1):
            item_ID = torch.arange(float(request.n_items))[:, None] * (
                1 if epoch in self.good else -1
            )
            fitted = FittedMF(torch.ones(len(request.train), 1), item_ID)
            if request.on_epoch is not None and request.on_epoch(epoch, fitted):
                break
        return fitted


def split_with_last_item_valid() -> Split:
    return Split(
        USERS, ITEMS, train=Ragged.of([[0]]), valid=Ragged.of([[ITEMS - 1]]), test=Ragged.of([[3]])
    )


@pytest.mark.parametrize(
    ("good", "every", "patience", "epoch", "asked"),
    [
        ({3, 5}, 1, 0, 3, [1, 2, 3, 4, 5, 6]),  # the first of equals
        ({3, 5}, 1, 2, 3, [1, 2, 3, 4, 5]),
        ({3, 4}, 2, 0, 4, [2, 4, 6]),
        ({6}, 1, 3, 1, [1, 2, 3, 4]),  # stopped before it got better
    ],
)
def test_selection_on_validation(
    good: set[int], every: int, patience: int, epoch: int, asked: list[int]
) -> None:
    split, config = split_with_last_item_valid(), EvaluateConfig(metrics=("mrr@1",), every=every)
    found = fit_selected(
        Scripted(good, 6),
        FitRequest(split.train, split.train, ITEMS),
        split,
        config,
        patience=patience,
    )
    assert found.epoch == epoch
    assert list(found.history) == asked
    first: Tensor = found.fitted.items()[1]
    assert bool(first > 0) == (epoch in good)


def test_nothing_to_select_from() -> None:
    split, config = split_with_last_item_valid(), EvaluateConfig(every=5)
    with pytest.raises(
        CoveyError, match=r"no epoch would be evaluated: evaluate\.every = 5, but epochs = 2"
    ):
        fit_selected(
            PooledMF(dim=2, epochs=2), FitRequest(split.train, split.train, ITEMS), split, config
        )
    empty = Split(USERS, ITEMS, train=split.train, valid=nothing(1), test=split.test)
    with pytest.raises(CoveyError, match="nothing is held out for validation"):
        fit_selected(
            PooledMF(dim=2, epochs=2),
            FitRequest(split.train, split.train, ITEMS),
            empty,
            EvaluateConfig(),
        )
