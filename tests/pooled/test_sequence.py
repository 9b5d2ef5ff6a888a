"""Pooled GRU, SASRec and BERT4Rec: whether they learn, what they use, and when they stop."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import covey
from covey.contract.model import History
from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.evaluate.metrics import EvaluateConfig, summarise
from covey.pooled import sequence
from covey.pooled.common import FitRequest, evaluate_pooled, fit_selected
from covey.pooled.sequence import (
    FittedSequence,
    PooledBERT4Rec,
    PooledGRU,
    PooledSASRec,
    batch_loss,
)

ITEMS = 12
Options = PooledGRU | PooledSASRec | PooledBERT4Rec
MODELS: list[Options] = [  # lists are longer than `last`, so that every position is trained
    PooledGRU(dim=16, dropout=0.0, last=5, lr=0.02, epochs=30, batch=16),
    PooledSASRec(dim=16, dropout=0.1, last=5, lr=0.01, epochs=30, batch=16),
    PooledBERT4Rec(dim=16, dropout=0.0, hide=0.3, end=0.3, last=5, lr=0.005, epochs=100, batch=16),
]
named = pytest.mark.parametrize("options", MODELS, ids=lambda m: type(m).__name__)


@dataclass(frozen=True)
class Lists:
    train: Ragged
    valid: Ragged
    test: Ragged


def walk(user: int, start: int, many: int) -> list[int]:
    """Round the items, five at a time: what comes next is known from the last item alone."""
    return [(user + 5 * k) % ITEMS for k in range(start, start + many)]


LENGTHS = [5 + user % 5 for user in range(48)]
SPLIT = Lists(
    Ragged.of([walk(user, 0, many) for user, many in enumerate(LENGTHS)]),
    Ragged.of([walk(user, many, 1) for user, many in enumerate(LENGTHS)]),
    Ragged.of([walk(user, many + 1, 1) for user, many in enumerate(LENGTHS)]),
)
CONFIG = EvaluateConfig(metrics=("hit@1",), seen="kept")


@named
def test_it_learns_what_comes_next(options: Options) -> None:
    figures = evaluate_pooled(
        options.fit(FitRequest(SPLIT.train, SPLIT.train, ITEMS, 0)), SPLIT, CONFIG
    )
    assert summarise(figures["valid"])["hit@1"] > 0.9
    assert (
        summarise(figures["test"])["hit@1"] > 0.9
    )  # which follows the validation item, not the training list


@named
def test_the_same_seed_gives_the_same_model(options: Options) -> None:
    one, same, other = (
        replace(options, epochs=2).fit(FitRequest(SPLIT.train, SPLIT.train, ITEMS, seed)).items()
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)


@named
def test_users_without_items_and_with_one(options: Options) -> None:
    lists = Ragged.of([[], [3], [1, 2, 3], [5] * 300])
    fitted = replace(options, epochs=1).fit(FitRequest(lists, lists, ITEMS, 0))
    scores = fitted.score(torch.arange(4))
    assert scores.shape == (4, ITEMS) and scores.isfinite().all()
    items = torch.tensor([[0, 3], [1, 2], [4, 5], [6, 0]])
    torch.testing.assert_close(fitted.score_items(torch.arange(4), items), scores.gather(1, items))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@named
def test_a_gpu_learns_the_same(options: Options) -> None:
    short = replace(options, epochs=2)
    here, there, again = (
        short.fit(FitRequest(SPLIT.train, SPLIT.train, ITEMS, 0, d)).items()
        for d in ("cpu", "cuda", "cuda")
    )
    assert torch.equal(there, again)
    torch.testing.assert_close(
        there.cpu(), here, rtol=0, atol=0.01
    )  # Adam turns rounding into steps


def test_one_list_is_learnt_by_heart() -> None:
    lists = Ragged.of([[3, 1, 4, 5, 9, 2, 6]])
    options = PooledSASRec(dim=16, dropout=0.0, last=10, lr=0.01, epochs=150)
    fitted = options.fit(FitRequest(lists, lists, ITEMS, 0))
    assert isinstance(fitted, FittedSequence)
    loss = batch_loss(
        fitted.model,
        fitted.params,
        History.of(lists),
        torch.tensor([0]),
        Rng.of(0, 0, torch.arange(1)),
        None,
    )
    assert float(loss) < 0.01


@named
def test_a_batch_learns_the_same_whoever_is_padded_with_whom(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grouped by length, or all padded to the longest: dropout and masks are drawn per user."""
    options = replace(options, last=200, dropout=0.3)
    lists = Ragged.of([walk(user, 0, many) for user, many in enumerate([2, 150, 9, 3, 40, 17, 8])])
    users, hide = torch.arange(7), (0.3, 0.3) if isinstance(options, PooledBERT4Rec) else None
    found = []
    for together in (False, True):
        if together:
            monkeypatch.setattr(
                sequence, "by_length", lambda length_B: [torch.arange(len(length_B))]
            )
        start = options.model().public(ITEMS, Rng.server(0, 0, "start"))
        params = {k: v[None].requires_grad_() for k, v in start.items()}
        loss = batch_loss(
            options.model(), params, History.of(lists, 200), users, Rng.of(0, 1, users), hide
        )
        loss.backward()
        found.append([loss.detach(), *(v.grad for v in params.values())])
    for apart, side_by_side in zip(*found, strict=True):
        torch.testing.assert_close(apart, side_by_side, rtol=1e-4, atol=1e-6)


def test_lists_are_alike_up_to_the_next_power_of_two() -> None:
    groups = sequence.by_length(torch.tensor([2, 150, 9, 3, 40, 17, 8, 16]))
    assert [group.tolist() for group in groups] == [[0, 3, 6], [2, 7], [5], [4], [1]]


def test_it_stops_without_a_new_best() -> None:
    options = replace(MODELS[0], lr=1e-9, epochs=50, patience=3)
    chosen = fit_selected(
        options,
        FitRequest(SPLIT.train, SPLIT.train, ITEMS),
        SPLIT,
        CONFIG,
        patience=options.patience,
    )
    assert max(chosen.history) == chosen.epoch + 3 < 50


@pytest.mark.parametrize("method", ["gru", "sasrec", "bert4rec"])
def test_from_the_command_to_a_new_user(method: str, tmp_path: Path) -> None:
    small = {"dim": 8, "epochs": 2, "last": 10}
    data = {"users": 40, "items": 30, "mean_items": 6}
    made = covey.fit(method, out=tmp_path / "run", pooled=small, data=data)
    again = covey.Recommender.load(tmp_path / "run")
    assert again.recommend([made.users[0]], k=3) == made.recommend([made.users[0]], k=3)
    first, second = (again.recommend_new(list(made.items[at : at + 3]), k=3) for at in (0, 5))
    assert len(first) == 3 and first != second


@pytest.mark.parametrize(
    "options", [{"last": 1}, {"patience": -1}, {"lr": 0.0}, {"dropout": 1.0}, {"batch": 0}]
)
def test_impossible_options_are_named(options: dict[str, float]) -> None:
    with pytest.raises(CoveyError, match=next(iter(options))):
        PooledSASRec(**options)  # type: ignore[arg-type]
