"""The examples that clients train on, in catalogue ids and as rows of a small local item table."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core import CoveyError, Ragged, offsets_of


@dataclass(frozen=True)
class Examples:
    """The examples of a cohort, T in all."""

    items: Ragged  # the item of each example, as one list per client
    label: Tensor  # [T]
    weight: Tensor  # [T]
    slot: Tensor | None = None  # [T], position of a sequence that an example belongs to; -1: all
    # [T], the logits of another recommender, to which the model learns to add; all examples of a
    # client with the same item have the same offset.
    offset: Tensor | None = None

    @classmethod
    def of(cls, parts: list["Examples"]) -> "Examples":
        """Joins several lists of the same clients, client by client, with the parts in order."""
        if any(p.offset is not None for p in parts):
            why = "examples were added after they had offsets"
            raise CoveyError(f"{why}; list the mechanism that gives these last")
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
        """Adds examples for the same clients that belong to all positions of a sequence.

        `items` has one list per client, T in all; labels and weights are [T], weights 1 by default.
        """
        weight = torch.ones_like(label) if weight is None else weight
        slot = None if self.slot is None else torch.full_like(items.values, -1)
        more = Examples(items, label.to(self.label), weight.to(self.weight), slot)
        return Examples.of([self, more])

    def keep(self, mask_T: Tensor) -> "Examples":
        """The examples for which the mask is true."""
        slot = None if self.slot is None else self.slot[mask_T]
        offset = None if self.offset is None else self.offset[mask_T]
        items, label, weight = self.items.keep(mask_T), self.label[mask_T], self.weight[mask_T]
        return Examples(items, label, weight, slot, offset)


@dataclass(frozen=True)
class LocalRows:
    """The distinct items of each client, ascending, which are the rows of its local item table."""

    items: Ragged
    row: Tensor  # [T], the row of each example in the table of its client


def local_rows(examples: Examples, n_items: int) -> LocalRows:
    """Finds the rows of the local item tables, for a catalogue of `n_items`."""
    key = examples.items.owner * n_items + examples.items.values
    ordered, order = key.sort()
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    rows = Ragged.of_keys(ordered[first], n_items, len(examples.items))
    flat = torch.empty_like(key)
    flat[order] = first.long().cumsum(0) - 1
    return LocalRows(rows, flat - rows.offsets[:-1].repeat_interleave(examples.items.lengths))


def merge(examples: Examples, local: LocalRows) -> Examples:
    """Merges the examples of an item into one with their total weight and weighted mean label.

    The loss stays the same if it is linear in the label, as cross-entropies are.
    """
    flat = local.row + local.items.offsets[:-1].repeat_interleave(examples.items.lengths)
    zeros = examples.weight.new_zeros(len(local.items.values))
    weight = zeros.index_add(0, flat, examples.weight)
    label = zeros.index_add(0, flat, examples.weight * examples.label) / weight.clamp(min=1e-30)
    offset = examples.offset
    if offset is not None:
        offset = zeros.to(offset).index_copy(0, flat, offset)
    return Examples(local.items, label, weight, offset=offset)


@dataclass(frozen=True)
class Batch:
    """A padded block of clients: the rows of their local tables and the examples of one step."""

    items_CR: Tensor  # the item of each row
    real_CR: Tensor  # whether a row is a row and not padding, bool
    index_CL: Tensor | None  # the row of each example; None if example l is row l
    label_CL: Tensor  # the label of each example
    weight_CL: Tensor  # the weight of each example; 0 for padding
    slot_CL: Tensor | None = None  # position of a sequence that an example belongs to; -1: all
    offset_CL: Tensor | None = None  # the logits of another recommender

    def items_CL(self) -> Tensor:
        """The item of each example."""
        return self.items_CR if self.index_CL is None else self.items_CR.gather(1, self.index_CL)

    def with_offset(self, z_CL: Tensor) -> Tensor:
        """The model's logits plus those of the other recommender, if there is one."""
        return z_CL if self.offset_CL is None else z_CL + self.offset_CL.to(z_CL)
