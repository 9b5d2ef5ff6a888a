"""Repeated ranking with one score matrix, and ranking by ranges of items, against a single pass."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client import ranking as measuring
from covey.engine.client.ranking import HeldOut, Ranker, measure
from covey.evaluate.metrics import EvaluateConfig
from covey.evaluate.ranking import Scores, Top, item_range, merged, ranks_full, ranks_of
from covey.models.mf import MF

CLIENTS, DEPTH = 3, 10


def drawn(seed: int, items: int, levels: int, odd: float) -> tuple[Tensor, torch.Generator]:
    """Scores with ties and some NaN."""
    g = torch.Generator().manual_seed(seed)
    score_CI = torch.randint(0, levels, (CLIENTS, items), generator=g).float()
    for value in (math.nan, math.inf, -math.inf):
        score_CI[torch.rand(score_CI.shape, generator=g) < odd] = value
    return score_CI, g


def some(g: torch.Generator, items: int, *many: int) -> Ragged:
    return Ragged.of([torch.randperm(items, generator=g)[:n].tolist() for n in many])


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31), levels=st.integers(2, 600), items=st.integers(100, 900),
    odd=st.sampled_from([0.0, 0.0, 0.003]), more=st.sampled_from([1, 5, 40]),
)  # fmt: skip
def test_later_looks_hide_more(seed: int, levels: int, items: int, odd: float, more: int) -> None:
    score_CI, g = drawn(seed, items, levels, odd)
    hidden = some(g, items, 0, 30, items // 2)
    relevant = merged(
        some(g, items, 2, 0, 0),
        Ragged.of([[], hidden.take(torch.tensor([1])).values[:3].tolist(), []]),
    )
    scores, before = Scores(score_CI), score_CI.clone()
    for _ in range(3):
        found = ranks_of(scores.top(relevant, hidden, DEPTH), relevant)
        assert torch.equal(found.values, ranks_full(before, relevant, hidden, DEPTH).values)
        assert torch.equal(score_CI.nan_to_num(7.0), before.nan_to_num(7.0))
        hidden, relevant = merged(hidden, relevant), some(g, items, 1, 0, 3)
        hidden = merged(hidden, some(g, items, more, 1, 0))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**31), levels=st.integers(2, 600), items=st.integers(30, 700),
    wide=st.sampled_from([5, 64, 299]), odd=st.sampled_from([0.0, 0.02]),
)  # fmt: skip
def test_shelves_together_are_the_catalogue(
    seed: int, levels: int, items: int, wide: int, odd: float
) -> None:
    score_CI, g = drawn(seed, items, levels, odd)
    relevant, hidden = some(g, items, 0, 1, 20), some(g, items, items - 5, 0, items // 2)
    tops, mine = [], []
    for first in range(0, items, wide):
        last = min(first + wide, items)
        held, mine_T = item_range(relevant, first, last, items)
        covered = item_range(hidden, first, last, items)[0]
        tops.append(Scores(score_CI[:, first:last]).top(held, covered, DEPTH))
        mine.append(mine_T)
    found = ranks_of(Top.joined(tops, mine), relevant)
    assert torch.equal(found.values, ranks_full(score_CI, relevant, hidden, DEPTH).values)


@pytest.mark.parametrize("seen", ["filtered", "kept"])
def test_a_large_catalogue_is_measured_as_a_small_one(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(0)
    many, items = 9, 700
    params = {
        "items": torch.randn(1, items, 4, generator=g),
        "user": torch.randn(many, 4, generator=g),
    }
    ranker = Ranker(MF(4), params, None, Rng.of(0, 1, torch.arange(many)))
    orders = [torch.randperm(items, generator=g) for _ in range(many)]

    def cut(a: int, b: int) -> Ragged:
        return Ragged.of([order[a:b].tolist() for order in orders])

    held, config = (
        HeldOut(cut(20, 23), cut(23, 26)),
        EvaluateConfig(seen=seen, metrics=("recall@200", "ndcg@100")),
    )
    whole = measure(ranker, cut(0, 20), held, config)
    assert len(ranker.shelves()) == 1
    monkeypatch.setattr(measuring, "SHELF", 128)
    monkeypatch.setattr(measuring, "TOGETHER", 4)
    assert len(ranker.shelves()) == 6
    parts = measure(ranker, cut(0, 20), held, config)
    assert whole.keys() == parts.keys() and all(torch.equal(whole[k], parts[k]) for k in whole)
    assert all(0 < v.mean() < 1 for v in whole.values())
