"""Negatives: never an avoided item, exactly uniform, distinct, and valid if few are left."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.core.sampling import distinct_ranks, negatives, outside

ITEMS = 12
LISTS = st.lists(st.frozensets(st.integers(0, ITEMS - 1)), min_size=1, max_size=5)


def avoiding(sets: list[frozenset[int]]) -> Ragged:
    return Ragged.of([sorted(s) for s in sets])


@given(LISTS)
@settings(max_examples=80, deadline=None)
def test_outside_lists_exactly_the_allowed_items_in_order(sets: list[frozenset[int]]) -> None:
    allowed = [[i for i in range(ITEMS) if i not in s] for s in sets]
    ranks = Ragged.of([list(range(len(a))) for a in allowed])
    assert outside(avoiding(sets), ITEMS, ranks).tolist() == [i for a in allowed for i in a]


@given(
    LISTS,
    st.lists(st.integers(0, 4), min_size=5, max_size=5),
    st.integers(1, 6),
    st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_negatives_are_allowed_and_distinct(
    sets: list[frozenset[int]], many: list[int], count: int, seed: int
) -> None:
    avoid, per_client = avoiding(sets), torch.tensor(many[: len(sets)])
    rng = Rng.of(seed, 1, torch.arange(len(sets)))
    items_TK, exists_TK = negatives(avoid, ITEMS, per_client, count, rng)
    assert items_TK.shape == exists_TK.shape == (int(per_client.sum()), count)
    assert bool(((items_TK >= 0) & (items_TK < ITEMS)).all())
    owner = torch.repeat_interleave(per_client).tolist()
    for row, real, client in zip(items_TK.tolist(), exists_TK.tolist(), owner, strict=True):
        drawn = [i for i, r in zip(row, real, strict=True) if r]
        assert len(drawn) == min(count, ITEMS - len(sets[client]))
        assert len(set(drawn)) == len(drawn)
        assert not sets[client].intersection(drawn)


@given(LISTS, st.integers(0, 99), st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_a_client_draws_the_same_alone_as_in_a_cohort(
    sets: list[frozenset[int]], seed: int, which: int
) -> None:
    which %= len(sets)
    per_client = torch.arange(len(sets)) % 3 + 1
    rng, pick = Rng.of(seed, 1, torch.arange(len(sets))), torch.tensor([which])
    together, _ = negatives(avoiding(sets), ITEMS, per_client, 3, rng)
    alone, _ = negatives(avoiding([sets[which]]), ITEMS, per_client[pick], 3, rng.take(pick))
    start = int(per_client[:which].sum())
    assert torch.equal(together[start : start + len(alone)], alone)


def draws(sets: list[frozenset[int]], count: int, repeats: int) -> torch.Tensor:
    many = torch.full((len(sets),), repeats)
    return negatives(avoiding(sets), ITEMS, many, count, Rng.of(0, 1, torch.arange(len(sets))))[0]


@pytest.mark.parametrize("count", [1, 4])
def test_every_allowed_item_is_equally_likely(count: int) -> None:
    avoid = frozenset({0, 3, 4, 11})
    items = draws([avoid], count, 6000).flatten()
    seen = np.bincount(items.numpy(), minlength=ITEMS)
    allowed = [i for i in range(ITEMS) if i not in avoid]
    assert seen[sorted(avoid)].sum() == 0
    assert stats.chisquare(seen[allowed]).pvalue > 1e-4


def test_every_pair_is_equally_likely() -> None:
    avoid = frozenset(range(5, ITEMS))  # 5 items left, 10 pairs
    low, high = draws([avoid], 2, 6000).sort(1).values.unbind(1)
    seen = np.bincount((low * 5 + high).numpy(), minlength=25)
    assert (seen > 0).sum() == 10
    assert stats.chisquare(seen[seen > 0]).pvalue > 1e-4


def test_where_just_enough_are_left_all_are_taken() -> None:
    items = draws([frozenset(range(3, ITEMS))], 3, 50)
    assert torch.equal(items.sort(1).values, torch.tensor([0, 1, 2]).expand(50, 3))


def test_an_empty_pool_gives_ids_of_the_catalogue_that_do_not_exist() -> None:
    items, exists = negatives(
        avoiding([frozenset(range(ITEMS))]),
        ITEMS,
        torch.tensor([2]),
        3,
        Rng.of(0, 1, torch.tensor([0])),
    )
    assert not bool(exists.any())
    assert bool(((items >= 0) & (items < ITEMS)).all())


def test_no_positives_no_negatives() -> None:
    items, exists = negatives(
        avoiding([frozenset()]), ITEMS, torch.tensor([0]), 3, Rng.of(0, 1, torch.tensor([0]))
    )
    assert items.shape == exists.shape == (0, 3)


@pytest.mark.parametrize("unit", [0.0, 1 - 2.0**-53])
def test_ranks_stay_inside_at_the_ends_of_the_unit_interval(unit: float) -> None:
    size_T = torch.arange(1, 9)
    ranks_TK = distinct_ranks(torch.full((8, 4), unit, dtype=torch.float64), size_T)
    for size, row in zip(size_T.tolist(), ranks_TK.tolist(), strict=True):
        real = row[: min(size, 4)]
        assert len(set(real)) == len(real) and all(0 <= r < size for r in real)


@given(st.integers(1, 60), st.integers(0, 70), st.integers(0, 1000))
def test_draws_by_turns_and_at_once_are_the_same(count: int, size: int, seed: int) -> None:
    unit_TK = torch.rand(
        20, count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    size_T = torch.full((20,), size)
    expected = []
    for row in unit_TK.tolist():  # Floyd's algorithm, word for word
        many, ranks = min(size, count), []
        for k in range(many):
            top = size - many + k
            draw = min(int(row[k] * (top + 1)), top)
            ranks.append(top if draw in ranks else draw)
        expected.append(ranks + [0] * (count - many))
    assert distinct_ranks(unit_TK, size_T).tolist() == expected
