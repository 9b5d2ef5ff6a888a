"""Ranks against a naive sort, with ties, NaN, infinities and hidden items."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey.core.ragged import Ragged
from covey.evaluate.ranking import (
    Top,
    distinct,
    merged,
    nothing,
    ranks_full,
    ranks_of,
    ranks_sampled,
    span,
    top_of,
)

INF, NAN = math.inf, math.nan


def lists(ragged: Ragged) -> list[list[int]]:
    ends = ragged.offsets.tolist()
    return [ragged.values[a:b].tolist() for a, b in pairwise(ends)]


def naive(scores: list[float], relevant: list[int], hidden: list[int], depth: int) -> list[int]:
    """Sort all candidates, irrelevant items before relevant ones of the same score."""
    clean = [-INF if math.isnan(s) else s for s in scores]
    candidates = [i for i in range(len(clean)) if i in relevant or i not in hidden]
    order = sorted(candidates, key=lambda i: (-clean[i], i in relevant))
    ranks = [order.index(i) + 1 if clean[i] > -INF else depth + 1 for i in relevant]
    return sorted(
        min(rank, depth + 1) for rank in ranks
    )  # which of several equal ones comes first is open


def check(score_CI: Tensor, relevant: list[list[int]], hidden: list[list[int]], depth: int) -> None:
    before = score_CI.clone()
    found = ranks_full(score_CI, Ragged.of(relevant), Ragged.of(hidden), depth)
    assert torch.equal(score_CI.nan_to_num(7.0), before.nan_to_num(7.0)), "scores are only read"
    expected = [naive(*row, depth) for row in zip(score_CI.tolist(), relevant, hidden)]
    assert [sorted(row) for row in lists(found)] == expected


def test_by_hand() -> None:
    score_CI = torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    found = ranks_full(score_CI, Ragged.of([[4, 1], [0]]), Ragged.of([[0, 3], []]), 4)
    assert lists(found) == [[3, 1], [5]]  # hidden items have no rank; larger ranks are depth + 1


def test_ties_go_against_the_relevant_item() -> None:
    score_CI = torch.tensor([[1.0, 1.0, 1.0, 2.0, 0.0]])
    assert lists(ranks_full(score_CI, Ragged.of([[0]]), nothing(1), 5)) == [[4]]
    assert sorted(ranks_full(score_CI, Ragged.of([[0, 1]]), nothing(1), 5).values.tolist()) == [
        3,
        4,
    ]


def test_a_constant_model_finds_nothing() -> None:
    score_CI = torch.zeros(3, 500)
    assert (
        ranks_full(score_CI, Ragged.of([[0], [1, 2], [499]]), nothing(3), 20).values == 21
    ).all()
    assert (
        ranks_full(score_CI * NAN, Ragged.of([[0], [1, 2], [499]]), nothing(3), 20).values == 21
    ).all()


def test_a_tie_across_the_last_place() -> None:
    score_CI = torch.arange(500.0)[None].clone()
    score_CI[0, 400:481] = 480.0  # places 20 to 100 are equal
    assert ranks_full(score_CI, Ragged.of([[450]]), nothing(1), 20).values.tolist() == [21]
    assert ranks_full(score_CI, Ragged.of([[450]]), nothing(1), 100).values.tolist() == [100]
    assert (
        ranks_full(score_CI, Ragged.of([list(range(400, 481))]), nothing(1), 20).values.min() == 20
    )


def test_neighbouring_doubles_are_told_apart() -> None:
    one = torch.tensor(1.0, dtype=torch.float64)
    score_CI = torch.stack([one, torch.nextafter(one, one * 0), torch.nextafter(one, one * 2)])[
        None
    ]
    assert ranks_full(score_CI, Ragged.of([[0]]), nothing(1), 3).values.tolist() == [2]
    assert ranks_full(score_CI, Ragged.of([[1]]), nothing(1), 3).values.tolist() == [3]


def test_a_relevant_item_is_never_hidden() -> None:
    score_CI = torch.tensor([[3.0, 2.0, 1.0]])
    assert ranks_full(score_CI, Ragged.of([[1]]), Ragged.of([[0, 1]]), 3).values.tolist() == [1]


def test_more_places_than_items() -> None:
    assert ranks_full(
        torch.tensor([[1.0, 2.0]]), Ragged.of([[0, 1]]), nothing(1), 50
    ).values.tolist() == [2, 1]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64]
)
def test_any_type_of_score(dtype: torch.dtype) -> None:
    score_CI = torch.arange(200)[None].to(dtype)
    assert ranks_full(
        score_CI, Ragged.of([[199, 190]]), Ragged.of([[195]]), 20
    ).values.tolist() == [1, 9]
    assert ranks_sampled(score_CI[:, :3]).tolist() == [3]


def test_no_clients_and_no_relevant_items() -> None:
    assert len(ranks_full(torch.zeros(0, 300), nothing(0), nothing(0), 20)) == 0
    assert lists(ranks_full(torch.zeros(2, 300), Ragged.of([[], [5]]), nothing(2), 20)) == [
        [],
        [21],
    ]


VALUES = st.sampled_from([-INF, -1.0, 0.0, 0.5, 1.0, INF, NAN])


@settings(max_examples=200, deadline=None)
@given(data=st.data(), clients=st.integers(1, 3), items=st.integers(1, 12), depth=st.integers(1, 8))
def test_equals_a_naive_sort(data: st.DataObject, clients: int, items: int, depth: int) -> None:
    row = st.lists(VALUES, min_size=items, max_size=items)
    some = st.lists(st.integers(0, items - 1), unique=True)
    score_CI = torch.tensor([data.draw(row) for _ in range(clients)])
    check(
        score_CI,
        [data.draw(some) for _ in range(clients)],
        [data.draw(some) for _ in range(clients)],
        depth,
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    levels=st.integers(1, 600),
    items=st.integers(100, 700),
    depth=st.integers(1, 20),
    odd=st.sampled_from([0.0, 0.02]),
)
def test_equals_a_naive_sort_in_blocks(
    seed: int, levels: int, items: int, depth: int, odd: float
) -> None:
    g = torch.Generator().manual_seed(seed)
    score_CI = torch.randint(0, levels, (3, items), generator=g).double()
    for value in (NAN, INF, -INF):
        score_CI[torch.rand(score_CI.shape, generator=g) < odd] = value
    relevant = [torch.randperm(items, generator=g)[:n].tolist() for n in (0, 1, 40)]
    hidden = [torch.randperm(items, generator=g)[:n].tolist() for n in (items - 5, 0, items // 2)]
    check(score_CI, relevant, hidden, depth)


def test_chunks_together_are_the_whole() -> None:
    g = torch.Generator().manual_seed(0)
    score_CI = torch.randint(0, 90, (7, 300), generator=g).float()
    relevant = Ragged.of([torch.randperm(300, generator=g)[: 5 * c].tolist() for c in range(7)])
    hidden = Ragged.of([torch.randperm(300, generator=g)[: 9 * c].tolist() for c in range(7)])
    chunks = [
        top_of(score_CI[a:b].clone(), span(relevant, a, b), span(hidden, a, b), 10, overwrite=True)
        for a, b in ((0, 3), (3, 7))
    ]
    whole = ranks_full(score_CI, relevant, hidden, 10)
    assert torch.equal(ranks_of(Top.cat(chunks), relevant).values, whole.values)


def test_sampled_by_hand() -> None:
    score_CL = torch.tensor(
        [[2.0, 1.0, 3.0], [1.0, 1.0, 1.0], [NAN, NAN, -INF], [0.0, NAN, 1.0], [INF, 1.0, INF]]
    )
    assert ranks_sampled(score_CL).tolist() == [2, 3, 3, 2, 2]


@settings(max_examples=100, deadline=None)
@given(scores=st.lists(VALUES, min_size=1, max_size=9))
def test_sampled_is_full_ranking_of_the_candidates(scores: list[float]) -> None:
    rank = int(ranks_sampled(torch.tensor([scores])))
    full = int(ranks_full(torch.tensor([scores]), Ragged.of([[0]]), nothing(1), 9).values)
    assert (
        rank == full or not scores[0] > -INF
    )  # in full ranking, such an item is not recommended at all


def test_distinct() -> None:
    assert lists(distinct(Ragged.of([[3, 1, 3], [], [2, 2], [0, 5]]))) == [[1, 3], [], [2], [0, 5]]
    assert lists(distinct(Ragged.of([[1, 3], [1]]))) == [[1, 3], [1]]
    assert lists(distinct(nothing(2))) == [[], []]


def test_merged_and_span() -> None:
    both = merged(Ragged.of([[5], [], [1, 2]]), Ragged.of([[9, 8], [7], []]))
    assert lists(both) == [[5, 9, 8], [7], [1, 2]]
    assert lists(span(both, 1, 3)) == [[7], [1, 2]]
    assert lists(merged(nothing(2), Ragged.of([[1], [2]]))) == [[1], [2]]
