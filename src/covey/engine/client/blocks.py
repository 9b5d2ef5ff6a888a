"""Clients of like size side by side: padded blocks that stay in cache, whatever the chunk.

On a CPU a client's padded sizes depend on itself alone, so its result has the same bits whoever shares
the block. Matrix kernels for a batch of one round differently, and so do sigmoids (and powers) in the
last few numbers of a tensor that do not fill a vector register: a block is filled up with doubles
of its first client, which are dropped, to two clients at least and to whole registers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd

import torch
from torch import Tensor

from covey.contract.examples import Batch, Examples, LocalRows, local_rows, merge
from covey.core.errors import CoveyError
from covey.core.padding import pad_lengths, pad_steps
from covey.core.ragged import Ragged

REGISTERS = 32  # numbers that a vectorised loop takes at once
LAUNCH = 400_000  # rows that an H200 computes while a step is started: by a profile (bench_contrast.py)


@dataclass(frozen=True)
class Engine:
    """How much is held at once. `block_rows` item rows per block: cache-sized on a CPU, large on a GPU."""

    device: str = "cpu"
    chunk: int = 0  # clients drawn and uploaded together; 0: by the memory budget
    block_rows: int = 0  # 0: 16,384 on the CPU, 2,000,000 on CUDA
    memory_mb: int = 0  # budget of a chunk's uploads; 0: 512 on the CPU, 16,000 on CUDA
    tables_mb: int = 0  # all clients' own tables lie in a file beyond it (CPU); 0: a quarter of the machine's memory

    def __post_init__(self) -> None:
        if min(self.chunk, self.block_rows, self.memory_mb, self.tables_mb) < 0:
            raise CoveyError("engine: chunk, block_rows, memory_mb and tables_mb are at least 0 (0 = chosen for you)")

    def floats_per_chunk(self) -> int:
        return (self.memory_mb or (512 if self.device == "cpu" else 16_000)) * 250_000

    def rows_per_block(self) -> int:
        return self.block_rows or (16_384 if self.device == "cpu" else 2_000_000)


@dataclass(frozen=True)
class Work:
    """The examples of a chunk of clients, laid out for training."""

    examples: Examples
    local: LocalRows | None  # None: clients hold whole tables, row number = item id
    n_items: int
    batch: int  # 0: all examples in one step

    @classmethod
    def of(cls, examples: Examples, n_items: int, *, whole: bool, pointwise: bool, batch: int) -> "Work":
        local = local_rows(examples, n_items)
        if pointwise and not batch:
            examples = merge(examples, local)
            local = LocalRows(local.items, local.items.place)
        return cls(examples, None if whole else local, n_items, batch)

    def rows_of(self, pick: Tensor) -> tuple[Ragged, Tensor]:
        """Catalogue ids of the rows of some clients, and where those rows stand in the chunk's flat list."""
        if self.local is None:
            many = torch.arange(self.n_items, device=pick.device).repeat(len(pick))
            ids = Ragged(many, torch.arange(len(pick) + 1, device=pick.device) * self.n_items)
            return ids, many + pick.repeat_interleave(self.n_items) * self.n_items
        index = self.local.items.where(pick)
        return index.like(self.local.items.values[index.values]), index.values

    @property
    def n_rows(self) -> int:
        """Rows of all clients together."""
        if self.local is None:
            return self.n_items * len(self.examples.items)
        return len(self.local.items.values)

    def row_items(self) -> Ragged:
        """Catalogue ids of the rows of all clients, laid out flat."""
        if self.local is not None:
            return self.local.items
        return self.rows_of(torch.arange(len(self.examples.items), device=self.examples.label.device))[0]


@dataclass(frozen=True)
class Block:
    pick: Tensor  # rows of the chunk, doubles at the end included
    real: int  # how many of them count
    n_rows: int  # padded
    n_examples: int  # padded, of one epoch
    steps: int  # per epoch


def plan(
    work: Work,
    budget_rows: int,
    cost: Callable[[int], int],
    coarse: bool = False,
    idle: bool = False,
    alike: bool = False,
    price: Callable[[int], int] | None = None,
) -> Iterator[Block]:
    """Blocks of clients with equal padded sizes, in a fixed order; `cost` of a table in rows of the budget.

    `idle`: a step without examples moves nothing, so that clients may be given some where that is `coarse`.
    `alike`: all are padded to the largest, if they then fit in one block. `price`: what a step with a table costs
    in time, in rows; sizes then become one where that is cheaper than to start another block.
    """
    sizes = _sizes(work, coarse, idle)
    if alike and len(sizes) and not work.batch:
        length, n_rows = (-(-int(n.max()) // 64) * 64 or 64 for n in (work.examples.items.lengths, _rows(work)))
        n_rows = work.n_items if work.local is None else n_rows
        if len(sizes) * max(cost(n_rows), length) <= budget_rows:
            sizes = torch.tensor([n_rows, length, 1], device=sizes.device).expand_as(sizes)
    room = lambda n_rows, length: budget_rows // max(cost(n_rows), work.batch or length, 1)
    kinds, kind_C = torch.unique(sizes, dim=0, return_inverse=True)
    if price and len(kinds) > 1:
        large = _joined(kinds.tolist(), torch.bincount(kind_C).tolist(), price, room, idle)
        kinds, kind_C = torch.unique(torch.tensor(large, device=sizes.device)[kind_C], dim=0, return_inverse=True)
    order = kind_C.argsort(stable=True)
    counts = torch.bincount(kind_C, minlength=len(kinds)).tolist()
    start = 0
    for (n_rows, length, steps), count in zip(kinds.tolist(), counts, strict=True):
        unit = max(2, REGISTERS // gcd(REGISTERS, work.batch or length))
        many = max(room(n_rows, length) // unit, 1) * unit
        for at in range(start, start + count, many):
            pick = order[at : min(at + many, start + count)]
            doubles = pick[:1].expand(-len(pick) % unit)
            yield Block(torch.cat([pick, doubles]), len(pick), n_rows, length, steps)
        start += count


def _sizes(work: Work, coarse: bool, idle: bool) -> Tensor:
    """Rows, examples and steps of each client, padded by its own numbers alone, [C, 3]."""
    n_C = work.examples.items.lengths
    if work.batch:
        # Negatives that do not exist weigh nothing and come last: they make no step, in which Adam would move on.
        real_C = torch.zeros_like(n_C).index_add_(0, work.examples.items.owner, (work.examples.weight > 0).long())
        steps_C, whole_C = (((n + work.batch - 1) // work.batch).clamp(min=1) for n in (real_C, n_C))
        if coarse and idle:
            steps_C, whole_C = pad_steps(steps_C), pad_steps(whole_C)
        length_C = whole_C * work.batch
        rows_C = length_C.clamp(max=-(-work.n_items // 64) * 64)
    else:
        steps_C = torch.ones_like(n_C)
        length_C, rows_C = pad_lengths(n_C, coarse), pad_lengths(_rows(work), coarse)
    if work.local is None:
        rows_C = _rows(work)
    return torch.stack([rows_C, length_C, steps_C], 1)


def _joined(
    kinds: list[list[int]],
    counts: list[int],
    price: Callable[[int], int],
    room: Callable[[int, int], int],
    idle: bool,
) -> list[list[int]]:
    """The sizes (rows, examples, steps) to which each kind is padded: its own, or those of the kinds after it."""
    out, group, many = [list(k) for k in kinds], [0], counts[0]
    for k in range(1, len(kinds)):
        n_rows, length, steps = (max(a, b) for a, b in zip(out[group[0]], kinds[k], strict=True))
        old_rows, _, old_steps = out[group[0]]
        more = many * (steps * price(n_rows) - old_steps * price(old_rows))
        fits = many + counts[k] <= room(n_rows, length)
        if fits and more < old_steps * LAUNCH and (idle or steps == old_steps):
            group, many = [*group, k], many + counts[k]
            for j in group:
                out[j] = [n_rows, length, steps]
        else:
            group, many = [k], counts[k]
    return out


def _rows(work: Work) -> Tensor:
    """How many rows each client holds."""
    if work.local is None:
        return torch.full_like(work.examples.items.lengths, work.n_items)
    return work.local.items.lengths


def whole_batch(work: Work, block: Block) -> Batch:
    """All examples of a block's clients in one step."""
    ids, _ = work.rows_of(block.pick)
    examples, pick = work.examples, block.pick
    flat = examples.items.where(pick)
    wide = lambda x: flat.like(x[flat.values]).padded(block.n_examples)
    index: Tensor | None
    if work.local is None:
        index = wide(examples.items.values)
    else:
        merged = block.n_rows == block.n_examples and examples.items is work.local.items
        index = None if merged else wide(work.local.row)
    slot = None if examples.slot is None else flat.like(examples.slot[flat.values]).padded(block.n_examples, -1)
    offset = None if examples.offset is None else wide(examples.offset)
    ids_CR, real_CR = ids.padded(block.n_rows), ids.mask(block.n_rows)
    return Batch(ids_CR, real_CR, index, wide(examples.label), wide(examples.weight), slot, offset)


def step_of(batch: Batch, order_CL: Tensor, size: int, step: int) -> Batch:
    """The step-th mini-batch of examples taken in a given order."""
    place_CB = order_CL[:, step * size : (step + 1) * size]
    assert batch.index_CL is not None
    at = lambda x: x.gather(1, place_CB)
    offset = None if batch.offset_CL is None else at(batch.offset_CL)
    label, weight = at(batch.label_CL), at(batch.weight_CL)
    return Batch(batch.items_CR, batch.real_CR, at(batch.index_CL), label, weight, None, offset)


def rows_only(batch: Batch) -> Batch:
    """The same examples where each brings its own item row, so that no table is looked up."""
    real_CL, offset = batch.weight_CL > 0, batch.offset_CL
    return Batch(batch.items_CL(), real_CL, None, batch.label_CL, batch.weight_CL, None, offset)
