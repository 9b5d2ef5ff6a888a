"""Splits worked by hand, and properties that hold for every one of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.data import Dataset, Split, SplitConfig, Synthetic, candidates, generate, pool
from covey.data.split import assigned, split


def make(
    rows: Sequence[tuple[int, int, float]], n_users: int = 2, n_items: int = 6, clock: bool = True
) -> Dataset:
    user_E, item_E, time_E = (np.array(x) for x in zip(*rows, strict=True))
    return Dataset("hand", n_users, n_items, user_E, item_E, time_E.astype(float), clock=clock)


def lists(ragged: Ragged) -> list[list[int]]:
    return [part.tolist() for part in torch.split(ragged.values, ragged.lengths.tolist())]


def parts(s: Split) -> tuple[Ragged, Ragged, Ragged]:
    return s.train, s.valid, s.test


HAND = [(0, 3, 20), (1, 0, 5), (0, 1, 10), (0, 2, 40), (1, 4, 6), (0, 5, 30)]


def test_leave_one_out_by_hand() -> None:
    s = split(make(HAND), SplitConfig("loo"))
    assert lists(s.train) == [
        [1, 3],
        [0, 4],
    ]  # in the order of time; two rows are too few for held-out ones
    assert lists(s.valid) == [[5], []] and lists(s.test) == [[2], []]


def test_ties_rank_the_earlier_row_as_the_later_one() -> None:
    rows = [(0, 0, 7), (0, 1, 9), (0, 2, 9), (0, 3, 9), (0, 4, 7), (1, 0, 1)]
    s = split(make(rows), SplitConfig("loo"))
    assert s.test.values.tolist() == [1] and s.valid.values.tolist() == [2]
    assert lists(s.train)[0] == [4, 0, 3]  # the same ranking in reverse


def test_leave_one_out_is_the_published_ranking() -> None:
    rng = np.random.default_rng(0)
    user_E, time_E = rng.integers(40, size=900), rng.integers(6, size=900).astype(float)
    d = Dataset("ties", 40, 900, user_E, np.arange(900), time_E)
    s = split(d, SplitConfig("loo", rows="given"))
    order = np.lexsort((np.arange(900), -time_E, user_E))
    first_N = np.searchsorted(user_E[order], np.arange(40))
    assert s.test.values.tolist() == order[first_N].tolist()
    assert s.valid.values.tolist() == order[first_N + 1].tolist()


def test_file_order_ignores_time_except_inside_a_part() -> None:
    s = split(make(HAND), SplitConfig("loo", "file"))
    assert lists(s.test) == [[5], []] and lists(s.valid) == [[2], []]
    assert lists(s.train) == [[1, 3], [0, 4]]


def test_without_times_the_file_is_the_order() -> None:
    s = split(replace(make(HAND), time_E=None, clock=False), SplitConfig("loo", "time"))
    assert (
        lists(s.train) == [[3, 1], [0, 4]] and lists(s.valid)[0] == [2] and lists(s.test)[0] == [5]
    )


REPEATS = [(0, 0, 1), (0, 1, 2), (0, 0, 9), (0, 2, 3), (1, 0, 1), (1, 0, 1)]


def test_distinct_rows_have_the_last_time_and_the_first_place() -> None:
    by_time = split(make(REPEATS), SplitConfig("loo"))
    assert (
        lists(by_time.train) == [[1], [0]]
        and lists(by_time.valid)[0] == [2]
        and lists(by_time.test)[0] == [0]
    )
    by_file = split(make(REPEATS), SplitConfig("loo", "file"))
    assert (
        lists(by_file.train)[0] == [0]
        and lists(by_file.valid)[0] == [1]
        and lists(by_file.test)[0] == [2]
    )


def test_given_rows_may_repeat_across_parts() -> None:
    s = split(make(REPEATS), SplitConfig("loo", rows="given"))
    assert (
        lists(s.train) == [[0, 1], [0, 0]] and lists(s.valid)[0] == [2] and lists(s.test)[0] == [0]
    )


def test_distinct_rows_without_times_count_the_last_place_as_latest() -> None:
    s = split(replace(make(REPEATS), time_E=None, clock=False), SplitConfig("loo"))
    assert lists(s.train)[0] == [1] and lists(s.valid)[0] == [0] and lists(s.test)[0] == [2]


def test_ratio_by_time_by_hand() -> None:
    rows = [(0, i, 100 - i) for i in range(10)] + [(1, 3, 0)]
    s = split(make(rows, n_items=10), SplitConfig("ratio", "time", valid=0.25))
    assert lists(s.test) == [[1, 0], []]  # int(10 * 0.8) = 8 rows train; a single row always does
    assert len(lists(s.valid)[0]) == 2 and lists(s.valid)[1] == []
    assert sorted(lists(s.train)[0] + lists(s.valid)[0]) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert lists(s.train)[0] == sorted(lists(s.train)[0], reverse=True)


@pytest.mark.parametrize(
    ("n", "test", "kept"), [(1, 0.2, 1), (2, 0.2, 1), (5, 0.2, 4), (9, 0.2, 7), (10, 0.3, 7)]
)
def test_ratio_counts(n: int, test: float, kept: int) -> None:
    rows = [(u, i, 0) for u in range(2) for i in range(n)]
    s = split(make(rows, n_items=10), SplitConfig("ratio", "random", test=test, valid=0))
    assert s.train.lengths.tolist() == [kept, kept] and s.test.lengths.tolist() == [
        n - kept,
        n - kept,
    ]


def test_temporal_by_hand() -> None:
    rows = [(0, i, i) for i in range(5)] + [(1, i, i) for i in range(5)]
    s = split(make(rows), SplitConfig("temporal", test=0.2, valid=0.25))
    assert (
        lists(s.train) == [[0, 1, 2], [0, 1, 2]]
        and lists(s.valid) == [[3], [3]]
        and lists(s.test) == [[4], [4]]
    )


def test_temporal_needs_a_clock_and_times_that_differ() -> None:
    with pytest.raises(CoveyError, match="no clock"):
        split(make(HAND, clock=False), SplitConfig("temporal"))
    with pytest.raises(CoveyError, match="share one time"):
        split(make([(0, 0, 1), (0, 1, 1), (1, 0, 1)]), SplitConfig("temporal"))


def test_random_order_belongs_to_the_user_and_the_seed() -> None:
    d = generate(Synthetic(users=60, items=80, mean_items=9))
    config = SplitConfig("ratio", "random")
    whole, again, other = split(d, config), split(d, config), split(d, replace(config, seed=1))
    assert lists(whole.test) == lists(again.test) and lists(whole.valid) == lists(again.valid)
    assert lists(whole.test) != lists(other.test)
    keep_E = d.user_E < 30  # rows of other users change nothing
    half = split(
        replace(
            d, n_users=30, **{k: getattr(d, k)[keep_E] for k in ("user_E", "item_E", "time_E")}
        ),
        config,
    )
    assert (
        lists(half.test) == lists(whole.test)[:30] and lists(half.valid) == lists(whole.valid)[:30]
    )


def test_validation_has_its_share_of_short_histories_too() -> None:
    d = generate(Synthetic(users=2000, items=60, mean_items=6))
    s = split(d, SplitConfig("ratio", "random", valid=0.1))
    short = s.train.lengths + s.valid.lengths < 10
    share = s.valid.lengths[short].sum() / (s.train.lengths + s.valid.lengths)[short].sum()
    assert float(share) == pytest.approx(0.1, abs=0.02)


def test_every_row_is_equally_likely_to_be_test() -> None:
    rows = [(u, i, i) for u in range(3000) for i in range(5)]
    s = split(make(rows, n_users=3000), SplitConfig("loo", "random"))
    for part in (s.test, s.valid):
        assert (torch.bincount(part.values, minlength=5)[:5] / 3000 - 0.2).abs().max() < 0.03


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    n_users, n_items = draw(st.integers(2, 8)), draw(st.integers(2, 9))
    row = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 1), st.integers(0, 6))
    rows = draw(st.lists(row, min_size=1, max_size=60))
    return make(rows, n_users, n_items)


configs = st.builds(
    SplitConfig,
    st.sampled_from(["loo", "ratio"]),
    st.sampled_from(["random", "time", "file"]),
    st.sampled_from(["distinct", "given"]),
    st.floats(0.05, 0.95),
    st.floats(0, 0.95),
    st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(datasets(), configs)
def test_no_row_is_lost_or_used_twice(d: Dataset, config: SplitConfig) -> None:
    s = split(d, config)
    pairs = list(zip(d.user_E.tolist(), d.item_E.tolist(), strict=True))
    found = [(int(u), int(i)) for p in parts(s) for u, i in zip(p.owner, p.values, strict=True)]
    assert sorted(found) == sorted(set(pairs) if config.rows == "distinct" else pairs)
    assert all(len(p) == d.n_users and p.values.dtype == torch.int64 for p in parts(s))
    rows_N = sum(p.lengths for p in parts(s))
    assert isinstance(rows_N, torch.Tensor)
    assert (s.train.lengths[rows_N > 0] > 0).all()  # users with rows train


@settings(max_examples=100, deadline=None)
@given(datasets(), configs)
def test_a_split_can_be_written_down(d: Dataset, config: SplitConfig) -> None:
    whole, again = split(d, config), split(assigned(d, config), SplitConfig("given", rows="given"))
    assert all(
        torch.equal(a.values, b.values) for a, b in zip(parts(whole), parts(again), strict=True)
    )
    assert all(
        torch.equal(a.offsets, b.offsets) for a, b in zip(parts(whole), parts(again), strict=True)
    )


@settings(max_examples=100, deadline=None)
@given(datasets(), configs)
def test_training_is_in_the_order_of_time(d: Dataset, config: SplitConfig) -> None:
    s = split(d, config)
    assert d.time_E is not None
    if config.rows == "distinct":
        last: dict[tuple[int, int], float] = {}
        for u, i, t in zip(d.user_E.tolist(), d.item_E.tolist(), d.time_E.tolist(), strict=True):
            last[u, i] = max(t, last.get((u, i), t))
        for u, items in enumerate(lists(s.train)):
            times = [last[u, i] for i in items]
            assert times == sorted(times)


@settings(max_examples=60, deadline=None)
@given(datasets(), st.floats(0.05, 0.95), st.floats(0, 0.9))
def test_a_temporal_split_never_trains_on_the_future(d: Dataset, test: float, valid: float) -> None:
    assert d.time_E is not None
    numbered = replace(
        d, n_items=len(d), item_E=np.arange(len(d))
    )  # an item for each row shows its time
    assume(len(d) > 1 and np.quantile(d.time_E, 1 - test, method="higher") < d.time_E.max())
    s = split(numbered, SplitConfig("temporal", rows="given", test=test, valid=valid))
    times = [d.time_E[p.values.numpy()] for p in parts(s)]
    spans = [(t.min(), t.max()) for t in times if len(t)]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    assert 0 < len(times[2]) <= test * len(d) + 1


@settings(max_examples=60, deadline=None)
@given(datasets(), configs)
def test_pools_are_sorted_and_distinct(d: Dataset, config: SplitConfig) -> None:
    s = split(d, config)
    held = [set(a + b) for a, b in zip(lists(s.valid), lists(s.test), strict=True)]
    train = [set(a) for a in lists(s.train)]
    assert lists(pool(s, "train")) == [sorted(a) for a in train]
    assert lists(pool(s, "all")) == [sorted(a | b) for a, b in zip(train, held, strict=True)]


@settings(max_examples=60, deadline=None)
@given(datasets(), st.integers(1, 5), st.integers(0, 5), st.integers(0, 12))
def test_candidates_are_unseen_distinct_and_apart(
    d: Dataset, count: int, seed: int, spare: int
) -> None:
    s = split(replace(d, n_items=d.n_items + 2 * count + spare), SplitConfig("loo"))
    drawn = candidates(s, count, seed)
    assert all(
        drawn[k].shape == (d.n_users, count) and drawn[k].dtype == torch.int64
        for k in ("valid", "test")
    )
    for seen, row in zip(
        lists(pool(s, "all")), torch.cat([drawn["valid"], drawn["test"]], dim=1), strict=True
    ):
        found = set(row.tolist())
        assert len(found) == 2 * count and not found & set(seen) and found <= set(range(s.n_items))


def test_candidates_take_every_unseen_item_if_they_must() -> None:
    s = split(
        make(
            [(0, i, i) for i in range(4)] + [(1, 5, 0), (1, 1, 1), (1, 2, 2), (1, 7, 3)], n_items=8
        ),
        SplitConfig(),
    )
    drawn = candidates(s, 2)
    both = torch.cat([drawn["valid"], drawn["test"]], dim=1).sort(dim=1).values
    assert both.tolist() == [[4, 5, 6, 7], [0, 3, 4, 6]]


def test_too_few_unseen_items_is_an_error_with_a_remedy() -> None:
    s = split(make(HAND), SplitConfig("loo"))
    with pytest.raises(CoveyError, match="lower the count to 1 or less"):
        candidates(s, 3)


def test_candidates_are_uniform_and_belong_to_the_user() -> None:
    rows = [(u, i, i) for u in range(9000) for i in (0, 3, 4)]
    s = split(make(rows, n_users=9000, n_items=13), SplitConfig("loo"))
    drawn = candidates(s, 3)
    unseen = [1, 2, *range(5, 13)]
    for part in drawn.values():
        for place in range(3):
            share_I = torch.bincount(part[:, place], minlength=13)[unseen] / 9000
            assert (share_I - 0.1).abs().max() < 0.015
    few = split(make(rows[:300], n_users=100, n_items=13), SplitConfig("loo"))
    assert torch.equal(candidates(few, 3)["test"], drawn["test"][:100])
    assert torch.equal(candidates(s, 3)["valid"], drawn["valid"])
    assert not torch.equal(candidates(s, 3, seed=1)["test"], drawn["test"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "lou"}, "did you mean 'loo'.*valid are ratio, loo, temporal"),
        ({"order": "alphabet"}, "valid are random, time, file"),
        ({"rows": "unique"}, "valid are distinct, given"),
        ({"test": 0.0}, "split.test = 0.0"),
        ({"valid": 1.0}, "split.valid = 1.0"),
        ({"kind": "temporal", "order": "random"}, "use order = 'time'"),
    ],
)
def test_wrong_values_are_refused_with_the_right_ones(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(CoveyError, match=message):
        SplitConfig(**wrong)  # type: ignore[arg-type]


def test_an_unknown_pool_is_refused() -> None:
    with pytest.raises(CoveyError, match="valid are train, all"):
        pool(split(make(HAND), SplitConfig()), "test")  # type: ignore[arg-type]
