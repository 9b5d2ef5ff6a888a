"""Which clients train side by side: blocks of clients of like size that stay in cache.

On a CPU a client's padded sizes depend on itself alone, so its result has the same bits whoever
shares the block. Matrix kernels round differently for a batch of one, and so do sigmoids and powers
in the last few numbers of a tensor, which do not fill a vector register. So each block is padded
with copies of its first client, up to two clients at least and whole registers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from covey.contract.mechanism import PlanningHooks
from covey.core.padding import pad_lengths, pad_steps

from .blocks import Block, Work

REGISTERS = 32  # numbers that a vectorised loop takes at once
ROUNDED = 64  # padded sizes beyond the usual ones are multiples of it, so that they fill registers
ROW_FLOATS = 256  # numbers of a row in training: itself, its gradient, and results between
LOOKED_UP = 4  # rows of a table that a step does not move, for the cost of one that it moves
# By a profile of an H200 (bench_contrast.py):
LAUNCH = 400_000  # rows that are computed while a step is started
PAIRS = 650  # pairs of rows that are compared in the time of one row of layers


Table = Literal["moved", "looked up", "shared"]


class Size(NamedTuple):
    """To what a client is padded."""

    rows: int  # of its item table
    examples: int  # of one epoch
    steps: int  # per epoch


@dataclass(frozen=True)
class CostModel:
    """What a block costs on a CPU, in item rows: how clients are padded and how many fit.

    A CPU pays for every padded row, so sizes stay near those of the client. A block fits the cache.
    """

    budget_rows: int  # the rows of a block
    mechanisms: Sequence[PlanningHooks] = ()  # their losses may hold more than the rows
    # What a step does with a client's own table: it moves all rows, or those of its examples, so
    # that the table costs a quarter. "shared": all clients of the block read one table.
    table: Table = "moved"
    examples_per_row: int = 1  # how many examples cost as much as one row
    waits: bool = False  # whether a step without examples moves nothing, which Adam would
    coarse: bool = False  # whether few different sizes are worth more padding

    def held(self, n_rows: int) -> int:
        """What a client with so many rows takes of the budget, in examples."""
        own = {"moved": n_rows, "looked up": n_rows // LOOKED_UP, "shared": 0}[self.table]
        more = sum(m.extra_floats(n_rows) for m in self.mechanisms) // ROW_FLOATS
        return self.examples_per_row * (own + more)

    def capacity(self, work: Work, size: Size) -> int:
        """How many clients of this size fit into a block; 0 where a single one is too large."""
        budget = self.examples_per_row * self.budget_rows
        return budget // max(self.held(size.rows), work.batch or size.examples, 1)

    def sizes(self, work: Work) -> Tensor:
        """The `Size` of each client, [C, 3], that depends on its own numbers alone."""
        n_C = work.examples.items.lengths
        if work.batch:
            # Negatives that do not exist weigh nothing and come last. They make no step, in which
            # Adam would move on.
            exists_T = (work.examples.weight > 0).long()
            real_C = torch.zeros_like(n_C).index_add_(0, work.examples.items.owner, exists_T)
            lots = ((n + work.batch - 1) // work.batch for n in (real_C, n_C))
            steps_C, whole_C = (many_C.clamp(min=1) for many_C in lots)
            if self.coarse and self.waits:
                steps_C, whole_C = pad_steps(steps_C), pad_steps(whole_C)
            length_C = whole_C * work.batch
            rows_C = length_C.clamp(max=_rounded(work.n_items))
        else:
            steps_C = torch.ones_like(n_C)
            length_C, rows_C = pad_lengths(n_C, self.coarse), pad_lengths(work.rows_C, self.coarse)
        if work.local is None:
            rows_C = work.rows_C
        return torch.stack([rows_C, length_C, steps_C], 1)

    def joined(self, work: Work, kinds: list[Size], counts: list[int]) -> list[Size]:
        """The size to which each kind of clients is padded in the end: here its own."""
        return kinds


@dataclass(frozen=True)
class GpuCostModel(CostModel):
    """What a block costs on a GPU, where an operation costs more to start than to pad.

    Sizes are coarse, and kinds of clients are joined where their padding takes less time than to
    start another block. Results of a client then depend on the others in their last bits.
    """

    coarse: bool = True
    window: int = 0  # how many rows a step looks up; 0: the whole table
    one_size: bool = False  # whether all are padded to the largest, if they then fit into one block

    def step(self, n_rows: int) -> int:
        """The time of a step of one client, in rows."""
        pairs = sum(m.compared_pairs(n_rows) for m in self.mechanisms)
        return (self.window or n_rows) + pairs // PAIRS

    def sizes(self, work: Work) -> Tensor:
        sizes = super().sizes(work)
        if not self.one_size or not len(sizes) or work.batch:
            return sizes
        lists = work.examples.items.lengths, work.rows_C
        length, n_rows = (_rounded(int(n_C.max())) or ROUNDED for n_C in lists)
        largest = Size(work.n_items if work.local is None else n_rows, length, 1)
        if self.capacity(work, largest) < len(sizes):
            return sizes
        return torch.tensor(largest, device=sizes.device).expand_as(sizes)

    def joined(self, work: Work, kinds: list[Size], counts: list[int]) -> list[Size]:
        """A kind takes the size of the kinds after it, as long as that pays."""
        out = list(kinds)
        first = 0  # of the kinds that are joined at present
        for k in range(1, len(kinds)):
            old, many = out[first], sum(counts[first:k])
            new = Size(*map(max, old, kinds[k]))
            fits = many + counts[k] <= self.capacity(work, new)
            alike = old.steps == new.steps or self.waits
            more = many * (new.steps * self.step(new.rows) - old.steps * self.step(old.rows))
            if fits and alike and more < old.steps * LAUNCH:
                out[first : k + 1] = [new] * (k + 1 - first)
            else:
                first = k
        return out

        """A kind takes the size of the kinds after it, as long as that pays."""


def plan(work: Work, costs: CostModel) -> Iterator[Block]:
    """Blocks of the clients in a chunk with equal padded sizes on a device, in a fixed order."""
    kind_C, kinds, counts = _kinds(costs.sizes(work))
    joined = costs.joined(work, kinds, counts)
    if joined != kinds:
        kind_C, kinds, counts = _kinds(torch.tensor(joined, device=kind_C.device)[kind_C])
    order = kind_C.argsort(stable=True)
    start = 0
    for size, count in zip(kinds, counts, strict=True):
        unit = max(2, REGISTERS // gcd(REGISTERS, work.batch or size.examples, work.width))
        many = max(costs.capacity(work, size) // unit, 1) * unit
        for at in range(start, start + count, many):
            pick = order[at : min(at + many, start + count)]
            doubles = pick[:1].expand(-len(pick) % unit)
            yield Block(torch.cat([pick, doubles]), len(pick), *size)
        start += count


def _kinds(sizes: Tensor) -> tuple[Tensor, list[Size], list[int]]:
    """The kind of each client by its size, the sizes of the kinds, and their numbers of clients."""
    found, kind_C = torch.unique(sizes, dim=0, return_inverse=True)
    return kind_C, [Size(*k) for k in found.tolist()], torch.bincount(kind_C).tolist()


def _rounded(n: int) -> int:
    return -(-n // ROUNDED) * ROUNDED
