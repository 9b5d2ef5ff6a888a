"""Synthetic data: counts, distinct items, signal."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.errors import CoveyError
from covey.data import Dataset, Synthetic, check, generate, synthetic


@st.composite
def options(draw: st.DrawFn) -> Synthetic:
    items = draw(st.integers(8, 300))
    return Synthetic(
        users=draw(st.integers(2, 200)),
        items=items,
        mean_items=draw(st.floats(2, items / 4)),
        groups=draw(st.integers(1, min(items, 12))),
        taste=draw(st.floats(0, 1)),
        popularity=draw(st.floats(0, 1.5)),
        seed=draw(st.integers(0, 9)),
    )


def same(a: Dataset, b: Dataset) -> bool:
    assert a.time_E is not None and b.time_E is not None
    return (
        np.array_equal(a.user_E, b.user_E)
        and np.array_equal(a.item_E, b.item_E)
        and np.array_equal(a.time_E, b.time_E)
        and a.titles == b.titles
    )


@settings(max_examples=60, deadline=None)
@given(options())
def test_pairs_are_distinct_and_the_mean_holds(options: Synthetic) -> None:
    d = check(generate(options))
    pairs = set(zip(d.user_E.tolist(), d.item_E.tolist(), strict=True))
    assert len(pairs) == len(d)
    assert set(d.user_E.tolist()) == set(range(options.users))  # every user has items
    assert len(d) / options.users == pytest.approx(
        options.mean_items, rel=0.05, abs=1 / options.users
    )


@settings(max_examples=30, deadline=None)
@given(options())
def test_titles_are_distinct_and_time_rises_for_each_user(options: Synthetic) -> None:
    d = generate(options)
    assert len(set(d.titles)) == options.items and all(d.titles)
    assert d.time_E is not None
    assert (np.diff(d.time_E)[np.diff(d.user_E) == 0] > 0).all()


def test_the_seed_decides_everything() -> None:
    one = Synthetic(users=50, items=80, mean_items=6)
    assert same(generate(one), generate(one))
    assert not same(generate(one), generate(replace(one, seed=1)))


def test_many_chunks_are_as_good_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "CHUNK", 64)
    d = generate(Synthetic(users=300, items=100, mean_items=8))
    assert len(d) == 2400 and len(np.unique(d.user_E.astype(int) * 100 + d.item_E)) == 2400


def test_popularity_and_activity_have_long_tails() -> None:
    d = generate(Synthetic())
    item_I, user_N = (
        np.sort(np.bincount(d.item_E, minlength=500))[::-1],
        np.sort(np.bincount(d.user_E))[::-1],
    )
    assert item_I[:50].sum() > 0.2 * len(d)
    assert user_N[0] > 8 * user_N[500]
    assert user_N[-1] >= 5


def test_groups_make_items_predictable() -> None:
    """A linear model of half of all items predicts the other half far better than popularity."""
    d = generate(Synthetic())
    half_E = np.random.default_rng(0).random(len(d)) < 0.5
    seen_NI, rest_NI = np.zeros((1000, 500)), np.zeros((1000, 500))
    seen_NI[d.user_E[half_E], d.item_E[half_E]] = 1
    rest_NI[d.user_E[~half_E], d.item_E[~half_E]] = 1
    inverse_II = np.linalg.inv(seen_NI.T @ seen_NI + 100 * np.eye(500))
    linear_II = np.eye(500) - inverse_II / np.diag(inverse_II)  # EASE
    known = {"linear": seen_NI @ linear_II, "popular": np.tile(seen_NI.sum(0), (1000, 1))}
    hits = {}
    for name, score_NI in known.items():
        top = np.argsort(-np.where(seen_NI > 0, -np.inf, score_NI), axis=1)[:, :10]
        hits[name] = np.take_along_axis(rest_NI, top, axis=1).sum()
    assert hits["linear"] > 1.5 * hits["popular"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"users": 1}, "users = 1"),
        ({"groups": 0}, "groups = 0"),
        ({"items": 4, "mean_items": 1.0}, "groups = 8; choose 1 to items"),
        ({"mean_items": 1.0}, "at least 2"),
        ({"mean_items": 200.0}, "at most a quarter"),
        ({"mean_items": float("nan")}, "at least 2"),
        ({"taste": 1.1}, "share"),
        ({"popularity": -1.0}, "negative"),
        ({"seed": -1}, "negative"),
    ],
)
def test_impossible_options_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        Synthetic(**wrong)  # type: ignore[arg-type]
