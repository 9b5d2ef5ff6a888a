"""What a client trains on: examples in catalogue ids, then as rows of a small local item table."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged, offsets_of


@dataclass(frozen=True)
class Examples:
    """Flat lists over clients. `slot` ties an example to one position of a sequence; -1: to all.

    `offset` is what another recommender says of an example, as a logit: the model learns what to add to it.
    """

    items: Ragged
    label: Tensor  # [T]
    weight: Tensor  # [T]
    slot: Tensor | None = None  # [T]
    offset: Tensor | None = None  # [T], the same wherever a client's item stands

    @classmethod
    def of(cls, parts: list["Examples"]) -> "Examples":
        """Several lists of the same clients as one, client by client, parts in order."""
        if any(p.offset is not None for p in parts):
            raise CoveyError(
                "examples were added after they had offsets; list the mechanism that gives these last"
            )
        owner = torch.cat([p.items.owner for p in parts])
        order = owner.argsort(stable=True)
        lengths = torch.stack([p.items.lengths for p in parts]).sum(0)
        values = torch.cat([p.items.values for p in parts])[order]
        label = torch.cat([p.label for p in parts])[order]
        weight = torch.cat([p.weight for p in parts])[order]
        slots = [p.slot for p in parts if p.slot is not None]
        slot = torch.cat(slots)[order] if len(slots) == len(parts) else None
        return cls(Ragged(values, offsets_of(lengths)), label, weight, slot)

    def append(self, items: Ragged, label: Tensor, weight: Tensor | None = None) -> "Examples":
        """More examples for the same clients, tied to no position."""
        weight = torch.ones_like(label) if weight is None else weight
        slot = None if self.slot is None else torch.full_like(items.values, -1)
        return Examples.of(
            [self, Examples(items, label.to(self.label), weight.to(self.weight), slot)]
        )

    def keep(self, mask_T: Tensor) -> "Examples":
        lengths = torch.zeros_like(self.items.lengths).index_add_(
            0, self.items.owner, mask_T.long()
        )
        slot = None if self.slot is None else self.slot[mask_T]
        items = Ragged(self.items.values[mask_T], offsets_of(lengths))
        offset = None if self.offset is None else self.offset[mask_T]
        return Examples(items, self.label[mask_T], self.weight[mask_T], slot, offset)


@dataclass(frozen=True)
class LocalRows:
    """The distinct items of each client, ascending, and where each example finds its row."""

    items: Ragged
    row: Tensor  # [T] of the examples: row number inside the client's own table


def local_rows(examples: Examples, n_items: int) -> LocalRows:
    key = examples.items.owner * n_items + examples.items.values
    ordered, order = key.sort()
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    distinct = ordered[first]
    owner = distinct // n_items
    lengths = torch.bincount(owner, minlength=len(examples.items))
    rows = Ragged(distinct - owner * n_items, offsets_of(lengths))
    flat = torch.empty_like(key)
    flat[order] = first.long().cumsum(0) - 1
    return LocalRows(rows, flat - rows.offsets[:-1].repeat_interleave(examples.items.lengths))


def merge(examples: Examples, local: LocalRows) -> Examples:
    """One example per distinct item with the summed weight and the weighted mean label.

    Exact for losses linear in the label (cross-entropies), since one client scores one item once.
    """
    flat = local.row + local.items.offsets[:-1].repeat_interleave(examples.items.lengths)
    zeros = examples.weight.new_zeros(len(local.items.values))
    weight = zeros.index_add(0, flat, examples.weight)
    label = zeros.index_add(0, flat, examples.weight * examples.label) / weight.clamp(min=1e-30)
    offset = (
        None
        if examples.offset is None
        else zeros.to(examples.offset).index_copy(0, flat, examples.offset)
    )
    return Examples(local.items, label, weight, offset=offset)


@dataclass(frozen=True)
class Batch:
    """A block of clients, padded: the rows of their local tables, and the examples of one step.

    `index_CL` is the row of each example; None where example l is row l.
    """

    items_CR: Tensor
    real_CR: Tensor  # bool: a row, not padding
    index_CL: Tensor | None
    label_CL: Tensor
    weight_CL: Tensor  # 0 where padded
    slot_CL: Tensor | None = None
    offset_CL: Tensor | None = None

    def items_CL(self) -> Tensor:
        return self.items_CR if self.index_CL is None else self.items_CR.gather(1, self.index_CL)

    def raised(self, z_CL: Tensor) -> Tensor:
        """The model's logits on top of what another recommender says."""
        return z_CL if self.offset_CL is None else z_CL + self.offset_CL.to(z_CL)
