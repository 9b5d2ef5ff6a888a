"""Blocks of clients: each exactly once, padded by its own size only, never alone in a kernel."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.contract.examples import Examples
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.blocks import Block, Work, rows_only, step_of, whole_batch
from covey.engine.client.planning import PAIRS, CostModel, GpuCostModel, plan

ITEMS = 50
LENGTHS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 200)), min_size=1, max_size=15)
OPTIONS = st.tuples(st.booleans(), st.booleans(), st.sampled_from([0, 4, 16]), st.integers(1, 400))


def work_of(lengths: list[int], whole: bool, pointwise: bool, batch: int) -> Work:
    many = torch.tensor(lengths)
    rng = Rng.of(0, 1, torch.arange(len(lengths)))
    items = rng.ragged_uniform(many)
    ids = items.like((items.values * ITEMS).long())
    mark = torch.arange(len(ids.values)).float() + 1
    return Work.of(
        Examples(ids, mark, mark), ITEMS, whole=whole, pointwise=pointwise, batch=batch * pointwise
    )


def blocks_of(work: Work, budget: int) -> list[Block]:
    return list(plan(work, CostModel(budget)))


@given(LENGTHS, OPTIONS)
@settings(max_examples=120, deadline=None)
def test_every_client_stands_in_one_block(
    lengths: list[int], options: tuple[bool, bool, int, int]
) -> None:
    *kind, budget = options
    blocks = blocks_of(work_of(lengths, *kind), budget)
    assert sorted(torch.cat([b.pick[: b.real] for b in blocks]).tolist()) == list(
        range(len(lengths))
    )
    for block in blocks:
        assert len(block.pick) >= 2
        assert set(block.pick[block.real :].tolist()) <= {int(block.pick[0])}
        assert (
            len(block.pick) * (kind[1] * kind[2] or block.n_examples) % 32 == 0
        )  # whole registers


@given(LENGTHS, OPTIONS)
@settings(max_examples=120, deadline=None)
def test_a_client_is_padded_the_same_whoever_is_there(
    lengths: list[int], options: tuple[bool, bool, int, int]
) -> None:
    *kind, budget = options
    work = work_of(lengths, *kind)
    for block in blocks_of(work, budget):
        for c in block.pick.tolist():
            examples = work.examples
            pick = torch.tensor([c])
            items = examples.items.take(pick)
            own = Examples(items, torch.ones(len(items.values)), torch.ones(len(items.values)))
            (alone,) = blocks_of(
                Work.of(own, ITEMS, whole=kind[0], pointwise=kind[1], batch=work.batch), 10**6
            )
            assert (alone.n_rows, alone.n_examples, alone.steps) == (
                block.n_rows,
                block.n_examples,
                block.steps,
            )


@given(LENGTHS, OPTIONS)
@settings(max_examples=80, deadline=None)
def test_a_batch_holds_what_its_clients_have(
    lengths: list[int], options: tuple[bool, bool, int, int]
) -> None:
    *kind, budget = options
    work = work_of(lengths, *kind)
    for block in blocks_of(work, budget):
        batch = whole_batch(work, block)
        assert batch.items_CR.shape == (len(block.pick), block.n_rows)
        assert batch.label_CL.shape == batch.weight_CL.shape == (len(block.pick), block.n_examples)
        items_CL = batch.items_CL()
        for k, c in enumerate(block.pick.tolist()):
            pick, n = torch.tensor([c]), int(work.examples.items.lengths[c])
            mine = work.examples.items.take(pick).values
            marks = work.examples.items.like(work.examples.label).take(pick).values
            assert torch.equal(items_CL[k, :n], mine)
            assert torch.equal(batch.label_CL[k, :n], marks)
            assert not bool(batch.weight_CL[k, n:].any())
            rows = batch.items_CR[k][batch.real_CR[k]]
            want = torch.arange(ITEMS) if kind[0] else mine.unique()
            assert torch.equal(rows, want)


@given(LENGTHS, st.sampled_from([4, 16]), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_mini_batches_hold_every_example_once(lengths: list[int], size: int, seed: int) -> None:
    work = work_of(lengths, False, True, size)
    for block in blocks_of(work, 200):
        batch = whole_batch(work, block)
        words = Rng.of(seed, 1, block.pick).bits(block.n_examples) >> 2
        order = torch.where(batch.weight_CL > 0, words, 2**62).argsort(dim=1)
        parts = [step_of(batch, order, size, step) for step in range(block.steps)]
        assert all(part.label_CL.shape[1] == size for part in parts)
        seen = torch.cat([part.label_CL for part in parts], 1)
        assert torch.equal(seen.sort(1).values, batch.label_CL.sort(1).values)
        for part in parts:
            assert torch.equal(rows_only(part).items_CL(), part.items_CL())


def test_a_lone_client_is_paired_with_itself() -> None:
    (block,) = blocks_of(work_of([64], False, False, 0), 1)
    assert block.pick.tolist() == [0, 0] and block.real == 1
    (block,) = blocks_of(
        work_of([5], False, True, 8), 1
    )  # steps of 8 examples, so 4 clients fill the registers
    assert block.pick.tolist() == [0, 0, 0, 0] and block.real == 1


def test_clients_without_examples() -> None:
    work = work_of([0, 0], False, True, 0)
    (block,) = blocks_of(work, 100)
    batch = whole_batch(work, block)
    assert (
        not bool(batch.real_CR.any())
        and not bool(batch.weight_CL.any())
        and batch.items_CR.shape == (2, 32)
    )


def test_rows_of_the_chunk_are_found_again() -> None:
    examples = Examples(Ragged.of([[3, 1], [2], [3, 0]]), torch.ones(5), torch.ones(5))
    work = Work.of(examples, 4, whole=False, pointwise=False, batch=0)
    ids, flat = work.rows_of(torch.tensor([2, 0]))
    assert ids.values.tolist() == [0, 3, 1, 3] and work.row_items().values[flat].tolist() == [
        0,
        3,
        1,
        3,
    ]
    whole = Work.of(examples, 4, whole=True, pointwise=False, batch=0)
    ids, flat = whole.rows_of(torch.tensor([1]))
    assert ids.values.tolist() == [0, 1, 2, 3] and flat.tolist() == [4, 5, 6, 7]
    assert len(whole.row_items().values) == 12


def test_matrix_products_have_the_same_bits_wherever_they_stand() -> None:
    """Odd sizes put clients at unaligned addresses, where kernels must give the same bits too."""
    x_CLA, g_CLB = (
        Rng.of(1, 1, torch.arange(12)).fold(name).normal(32, wide)
        for name, wide in (("x", 3), ("g", 5))
    )
    whole = x_CLA.mT @ g_CLB
    for first in range(10):
        some = slice(first, first + 2)
        assert torch.equal(x_CLA[some].mT @ g_CLB[some], whole[some])


@given(LENGTHS, OPTIONS)
@settings(max_examples=80, deadline=None)
def test_where_blocks_are_dear_there_are_fewer(
    lengths: list[int], options: tuple[bool, bool, int, int]
) -> None:
    """Each client is in one block with all examples, and no more blocks exceed the budget."""
    *kind, budget = options
    work = work_of(lengths, *kind)
    usual = list(plan(work, CostModel(budget, coarse=True, waits=True)))
    fewer = list(plan(work, GpuCostModel(budget, waits=True)))
    assert len(fewer) <= len(usual)
    clients = torch.cat([b.pick[: b.real] for b in fewer]).tolist()
    assert sorted(clients) == list(range(len(lengths)))
    for block in fewer:
        mine = work.examples.items.lengths[block.pick]
        assert int(mine.max()) <= block.n_examples and block.n_rows >= int(
            work.rows_of(block.pick)[0].lengths.max()
        )
        assert block.steps * (work.batch or block.n_examples) >= int(mine.max())
    assert len(list(plan(work, GpuCostModel(10**7, waits=True)))) == 1


class Compares:
    """A loss that compares all pairs of rows, very slowly."""

    def extra_floats(self, n_rows: int) -> int:
        return 0

    def compared_pairs(self, n_rows: int) -> int:
        return PAIRS * n_rows**2


def test_blocks_are_joined_where_padding_costs_less_than_a_start() -> None:
    lists = Ragged.of([list(range(n)) for n in (40, 500, 500, 4000)])
    ones = torch.ones(len(lists.values))
    work = Work.of(Examples(lists, ones, ones), 5000, whole=False, pointwise=True, batch=0)

    def many(costs: CostModel) -> list[int]:
        return [block.real for block in plan(work, costs)]

    assert many(CostModel(10**7, coarse=True)) == [1, 2, 1]
    assert many(GpuCostModel(10**7)) == [4]
    assert many(GpuCostModel(10**7, (Compares(),))) == [3, 1]


@given(LENGTHS, st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_clients_made_alike_stand_in_one_block_with_all_they_have(
    lengths: list[int], whole: bool, pointwise: bool
) -> None:
    work = work_of(lengths, whole, pointwise, 0)
    (block,) = plan(work, GpuCostModel(10**6, one_size=True))
    batch = whole_batch(work, block)
    mine = batch.weight_CL[: block.real].double().sum()
    assert block.real == len(lengths) and block.n_rows >= max(
        work.rows_of(block.pick)[0].lengths.tolist()
    )
    assert float(mine) == pytest.approx(float(work.examples.weight.double().sum()))
    too_small = [list(plan(work, GpuCostModel(1, one_size=same))) for same in (True, False)]
    assert len(too_small[0]) == len(too_small[1])
