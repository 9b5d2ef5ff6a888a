"""The examples of a chunk of clients, and blocks of some of them (`planning`), padded."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.contract.examples import Batch, Examples, LocalRows, local_rows, merge
from covey.core.ragged import Ragged

from .settings import Engine as Engine


@dataclass(frozen=True)
class Work:
    """The examples of a chunk of clients, laid out for training."""

    examples: Examples
    local: LocalRows | None  # None: clients hold whole tables, row number = item id
    n_items: int
    batch: int  # 0: all examples in one step
    width: int = 0  # of the states of a sequential model, which a step computes for each client

    @classmethod
    def of(
        cls, examples: Examples, n_items: int, *, whole: bool, pointwise: bool, batch: int
    ) -> "Work":
        """Lays examples out; `whole`: for whole tables; `pointwise`: those of an item may merge."""
        local = local_rows(examples, n_items)
        if pointwise and not batch:
            examples = merge(examples, local)
            local = LocalRows(local.items, local.items.place)
        return cls(examples, None if whole else local, n_items, batch)

    def rows_of(self, pick: Tensor) -> tuple[Ragged, Tensor]:
        """Catalogue ids of the rows of some clients, and their places in the chunk's flat list."""
        if self.local is None:
            many = torch.arange(self.n_items, device=pick.device).repeat(len(pick))
            ids = Ragged(many, torch.arange(len(pick) + 1, device=pick.device) * self.n_items)
            return ids, many + pick.repeat_interleave(self.n_items) * self.n_items
        index = self.local.items.where(pick)
        return index.like(self.local.items.values[index.values]), index.values

    @property
    def rows_C(self) -> Tensor:
        """How many rows each client holds, [C]."""
        if self.local is None:
            return torch.full_like(self.examples.items.lengths, self.n_items)
        return self.local.items.lengths

    @property
    def n_rows(self) -> int:
        """Rows of all clients together."""
        if self.local is None:
            return self.n_items * len(self.examples.items)
        return len(self.local.items.values)

    def row_items(self) -> Ragged:
        """Catalogue ids of the rows of all clients, laid out flat."""
        every = torch.arange(len(self.examples.items), device=self.examples.label.device)
        return self.rows_of(every)[0] if self.local is None else self.local.items


@dataclass(frozen=True)
class Block:
    """Clients that train side by side, and the sizes to which they are padded."""

    pick: Tensor  # places in the chunk; at the end copies of the first one
    real: int  # how many of them are no copies
    n_rows: int  # padded
    n_examples: int  # padded, of one epoch
    steps: int  # per epoch


def whole_batch(work: Work, block: Block) -> Batch:
    """All examples of a block's clients in one step."""
    ids, _ = work.rows_of(block.pick)
    examples, pick = work.examples, block.pick
    flat = examples.items.where(pick)

    def wide(x: Tensor, fill: int = 0) -> Tensor:
        return flat.like(x[flat.values]).padded(block.n_examples, fill)

    index: Tensor | None
    if work.local is None:
        index = wide(examples.items.values)
    else:
        merged = block.n_rows == block.n_examples and examples.items is work.local.items
        index = None if merged else wide(work.local.row)
    slot = None if examples.slot is None else wide(examples.slot, -1)
    offset = None if examples.offset is None else wide(examples.offset)
    ids_CR, real_CR = ids.padded(block.n_rows), ids.mask(block.n_rows)
    return Batch(ids_CR, real_CR, index, wide(examples.label), wide(examples.weight), slot, offset)


def step_of(batch: Batch, order_CL: Tensor, size: int, step: int) -> Batch:
    """The step-th mini-batch of examples taken in a given order."""
    place_CB = order_CL[:, step * size : (step + 1) * size]
    assert batch.index_CL is not None

    def at(x: Tensor) -> Tensor:
        return x.gather(1, place_CB)

    offset = None if batch.offset_CL is None else at(batch.offset_CL)
    label, weight = at(batch.label_CL), at(batch.weight_CL)
    return Batch(batch.items_CR, batch.real_CR, at(batch.index_CL), label, weight, None, offset)


def rows_only(batch: Batch) -> Batch:
    """The same examples, each with its own item row, so that no table is looked up."""
    real_CL, offset = batch.weight_CL > 0, batch.offset_CL
    return Batch(batch.items_CL(), real_CL, None, batch.label_CL, batch.weight_CL, None, offset)
