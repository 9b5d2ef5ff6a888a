"""Lists of lists, examples, local rows and merged examples, worked by hand."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covey.contract.examples import Batch, Examples, local_rows, merge
from covey.core.errors import CoveyError
from covey.core.padding import pad_lengths
from covey.core.ragged import Ragged, Rows, cat
from covey.core.rng import Rng
from covey.objectives.pairs import Bce

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=6)


def examples(items: list[list[int]], label: list[float], weight: list[float]) -> Examples:
    return Examples(Ragged.of(items), torch.tensor(label), torch.tensor(weight))


def as_lists(x: Ragged) -> list[list[int]]:
    return [x.take(torch.tensor([c])).values.tolist() for c in range(len(x))]


@given(LISTS, st.lists(st.integers(0, 5), max_size=8))
@settings(max_examples=60, deadline=None)
def test_ragged_is_a_list_of_lists(lists: list[list[int]], pick: list[int]) -> None:
    ragged, pick = Ragged.of(lists), [p % len(lists) for p in pick]
    assert as_lists(ragged) == lists
    assert as_lists(ragged.take(torch.tensor(pick, dtype=torch.long))) == [lists[p] for p in pick]
    assert ragged.owner.tolist() == [c for c, one in enumerate(lists) for _ in one]
    assert ragged.place.tolist() == [p for one in lists for p in range(len(one))]
    assert as_lists(Ragged.cat([ragged, ragged])) == lists + lists
    width = max(map(len, lists))
    assert ragged.padded(fill=-1).tolist() == [one + [-1] * (width - len(one)) for one in lists]
    assert ragged.mask(width).sum(1).tolist() == [len(one) for one in lists]


def test_rows() -> None:
    rows = Rows(Ragged.of([[0, 2], [], [1]]), torch.tensor([[1.0], [2.0], [3.0]]), 3)
    assert rows.dense()[..., 0].tolist() == [[1, 0, 2], [0, 0, 0], [0, 3, 0]]
    assert rows.scaled(torch.tensor([2.0, 5.0, 10.0])).dense()[..., 0].tolist() == [
        [2, 0, 4],
        [0, 0, 0],
        [0, 30, 0],
    ]
    turned = rows.take(torch.tensor([2, 0]))
    assert turned.dense()[..., 0].tolist() == [[0, 3, 0], [1, 0, 2]]
    assert len(cat([rows, turned])) == 5


def test_lists_are_joined_client_by_client() -> None:
    one = examples([[5, 6], []], [1, 2], [1, 1])
    two = examples([[7], [8]], [3, 4], [1, 1])
    joined = Examples.of([one, two])
    assert as_lists(joined.items) == [[5, 6, 7], [8]]
    assert joined.label.tolist() == [1, 2, 3, 4]


def test_append_ties_to_no_position() -> None:
    one = Examples(Ragged.of([[5], [6]]), torch.ones(2), torch.ones(2), torch.tensor([0, 0]))
    more = one.append(Ragged.of([[1, 2], []]), torch.zeros(2, dtype=torch.float64))
    assert as_lists(more.items) == [[5, 1, 2], [6]]
    assert more.slot is not None and more.slot.tolist() == [0, -1, -1, 0]
    assert more.label.dtype == torch.float32 and more.weight.tolist() == [1, 1, 1, 1]


def test_keep() -> None:
    some = examples([[5, 6], [7]], [1, 2, 3], [1, 1, 1]).keep(torch.tensor([False, True, False]))
    assert as_lists(some.items) == [[6], []] and some.label.tolist() == [2]


def test_local_rows() -> None:
    local = local_rows(examples([[9, 3, 9], [], [3]], [1, 0, 0, 1], [1, 1, 1, 1]), 10)
    assert as_lists(local.items) == [[3, 9], [], [3]]
    assert local.row.tolist() == [1, 0, 1, 0]


def test_merge() -> None:
    several = examples([[9, 3, 9], [3]], [1, 0, 0, 1], [2, 1, 1, 0])
    merged = merge(several, local_rows(several, 10))
    assert as_lists(merged.items) == [[3, 9], [3]]
    assert merged.weight.tolist() == [1, 3, 0]
    assert merged.label.tolist() == pytest.approx([0, 2 / 3, 0])


def test_offsets_stay_with_their_items() -> None:
    several = replace(
        examples([[9, 3, 9], [3]], [1, 0, 0, 1], [2, 1, 1, 0]),
        offset=torch.tensor([5.0, 2.0, 5.0, 7.0]),
    )
    merged, kept = (
        merge(several, local_rows(several, 10)),
        several.keep(torch.tensor([False, True, False, True])),
    )
    assert merged.offset is not None and merged.offset.tolist() == [2, 5, 7]
    assert kept.offset is not None and kept.offset.tolist() == [2, 7]
    with pytest.raises(CoveyError, match="list the mechanism that gives these last"):
        several.append(Ragged.of([[1], []]), torch.zeros(1))


@given(LISTS, st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_merged_examples_have_the_same_cross_entropy(lists: list[list[int]], seed: int) -> None:
    rng, many = Rng.of(seed, 1, torch.tensor([0])), sum(map(len, lists))
    label, weight = (rng.uniform(2, many)[0] > 0.5).double()
    several = Examples(Ragged.of(lists), label, weight * 2)
    local = local_rows(several, 10)
    merged = merge(several, local)
    z_T = rng.fold("z").normal(10, dtype=torch.float64)[0]

    def total(e: Examples) -> Tensor:
        logit_T = z_T[e.items.values]
        return F.binary_cross_entropy_with_logits(logit_T, e.label, e.weight, reduction="sum")

    assert float(total(several)) == pytest.approx(float(total(merged)), abs=1e-12)
    assert as_lists(local.items) == [sorted(set(one)) for one in lists]
    flat = local.row + local.items.offsets[:-1].repeat_interleave(several.items.lengths)
    assert torch.equal(local.items.values[flat], several.items.values)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=20), st.booleans())
@settings(max_examples=60, deadline=None)
def test_padded_lengths_depend_on_the_client_alone(lengths: list[int], coarse: bool) -> None:
    padded = pad_lengths(torch.tensor(lengths), coarse).tolist()
    assert padded == [int(pad_lengths(torch.tensor([n]), coarse)) for n in lengths]
    assert all(p >= max(n, 1) and p % 8 == 0 for n, p in zip(lengths, padded, strict=True))
    assert sorted(padded) == [p for _, p in sorted(zip(lengths, padded, strict=True))]


def test_items_of_a_batch() -> None:
    items_CR = torch.tensor([[4, 7]])
    batch = Batch(
        items_CR, items_CR > 0, torch.tensor([[1, 1, 0]]), torch.zeros(1, 3), torch.ones(1, 3)
    )
    assert batch.items_CL().tolist() == [[7, 7, 4]]


def test_positives_are_followed_by_their_negatives() -> None:
    items = Ragged.of([[2, 5], [1]])
    made = Bce(negatives=2).examples(items, items, 8, Rng.of(0, 1, torch.arange(2)))
    assert made.label.tolist() == [1, 0, 0] * 3
    assert (
        as_lists(made.items)[0][0] == 2
        and as_lists(made.items)[0][3] == 5
        and as_lists(made.items)[1][0] == 1
    )
    assert not {2, 5}.intersection(as_lists(made.items)[0][1:3])
    assert made.weight.tolist() == [1] * 9


def test_negatives_that_do_not_exist_weigh_nothing() -> None:
    items = Ragged.of([[0, 1, 2]])
    made = Bce(negatives=2).examples(items, items, 4, Rng.of(0, 1, torch.arange(1)))
    assert made.weight.tolist() == [1, 1, 0] * 3
