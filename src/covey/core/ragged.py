"""Ragged containers: one list per client, or some rows of a table per client.

Shape suffixes, used everywhere: C = clients of a cohort, N = all clients, I = items of the
catalogue, R = rows of a client's local item table, L = examples of a client, D = embedding
dimension, T = flat rows of all clients together. Every tensor on the client side has a leading C;
a single device is a cohort of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """One list per client, end to end: client c owns values[offsets[c] : offsets[c + 1]]."""

    values: Tensor  # [T, ...]
    offsets: Tensor  # [C + 1], int64, starts at 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Tensor:
        return self.offsets.diff()

    @property
    def owner(self) -> Tensor:
        """Row of the client that each value belongs to, [T]."""
        return torch.repeat_interleave(self.lengths, output_size=len(self.values))

    @property
    def place(self) -> Tensor:
        """Position of each value inside its own list, [T]."""
        start = self.offsets[:-1].repeat_interleave(self.lengths, output_size=len(self.values))
        return torch.arange(len(self.values), device=self.values.device) - start

    def where(self, pick: Tensor) -> "Ragged":
        """The positions in `values` of the lists of some clients."""
        lengths = self.lengths[pick]
        offsets = offsets_of(lengths)
        total = int(offsets[-1])
        shift_C = self.offsets[:-1][pick] - offsets[:-1]
        shift_T = shift_C.repeat_interleave(lengths, output_size=total)
        return Ragged(torch.arange(total, device=shift_T.device) + shift_T, offsets)

    def take(self, pick: Tensor) -> "Ragged":
        """The lists of some clients; ids that are stored in 32 bits become whole ones."""
        at = self.where(pick)
        values = self.values[at.values]
        return at.like(values.long() if values.dtype == torch.int32 else values)

    def keep(self, mask_T: Tensor) -> "Ragged":
        """The values for which the mask is true."""
        lengths = torch.bincount(self.owner[mask_T], minlength=len(self))
        return Ragged(self.values[mask_T], offsets_of(lengths))

    def like(self, values: Tensor) -> "Ragged":
        """Lists of the same lengths with other values."""
        return Ragged(values, self.offsets)

    def padded(self, width: int | None = None, fill: float | int | bool = 0) -> Tensor:
        """The lists as a tensor [C, width, ...]; without a width, that of the longest list."""
        width = int(self.lengths.max()) if width is None and len(self) else (width or 0)
        out = self.values.new_full((len(self), width, *self.values.shape[1:]), fill)
        out[self.owner, self.place] = self.values
        return out

    def mask(self, width: int) -> Tensor:
        """Which entries of `padded(width)` are values and not padding, bool [C, width]."""
        return torch.arange(width, device=self.offsets.device) < self.lengths[:, None]

    def to(self, device: torch.device | str) -> "Ragged":
        return Ragged(self.values.to(device), self.offsets.to(device))

    @staticmethod
    def of(lists: Sequence[Sequence[int]], dtype: torch.dtype = torch.int64) -> "Ragged":
        flat = torch.tensor([x for one in lists for x in one], dtype=dtype)
        return Ragged(flat, offsets_of(torch.tensor([len(x) for x in lists])))

    @staticmethod
    def of_keys(key_T: Tensor, width: int, many: int) -> "Ragged":
        """The lists of so many clients from ascending keys, each owner * width + value."""
        owner_T = key_T // width
        lengths = torch.bincount(owner_T, minlength=many)
        return Ragged(key_T - owner_T * width, offsets_of(lengths))

    @staticmethod
    def cat(parts: Sequence["Ragged"]) -> "Ragged":
        lengths = torch.cat([p.lengths for p in parts])
        return Ragged(torch.cat([p.values for p in parts]), offsets_of(lengths))


def offsets_of(lengths: Tensor) -> Tensor:
    """Where the list of each client begins, [C + 1]; the last entry is where the last one ends."""
    return torch.nn.functional.pad(lengths.long().cumsum(0), (1, 0))


@dataclass(frozen=True)
class Rows:
    """Some rows of an [I, ...] table for each client; a client has each item at most once."""

    items: Ragged  # which rows
    values: Tensor  # [T, ...], aligned with items.values
    height: int  # I

    def __len__(self) -> int:
        return len(self.items)

    def take(self, pick: Tensor) -> "Rows":
        index = self.items.where(pick)
        items = index.like(self.items.values[index.values])
        return Rows(items, self.values[index.values], self.height)

    def kept(self, keep_T: Tensor) -> "Rows":
        """The rows of each client where `keep_T` is true."""
        return Rows(self.items.keep(keep_T), self.values[keep_T], self.height)

    def scaled(self, s_C: Tensor) -> "Rows":
        """The rows of each client multiplied by its factor."""
        s_T = s_C.repeat_interleave(self.items.lengths).to(self.values)
        return replace(self, values=self.values * s_T.view(-1, *[1] * (self.values.dim() - 1)))

    def dense(self) -> Tensor:
        """Whole tables, [C, I, ...]; for small cohorts and for rules that need whole uploads."""
        out = self.values.new_zeros(len(self), self.height, *self.values.shape[1:])
        out[self.items.owner, self.items.values] = self.values
        return out

    def to(self, device: torch.device | str) -> "Rows":
        return Rows(self.items.to(device), self.values.to(device), self.height)


Field = Tensor | Ragged | Rows
Fields = dict[str, Tensor]
FieldDict = dict[str, Any]  # `Field`s by name; their owner knows which kind each of them is
Drawer = FieldDict  # its name in methods that were written before


def below(fields: FieldDict, start: str) -> FieldDict:
    """The fields whose names begin with `start`, by the rest of their names."""
    return {k.removeprefix(start): v for k, v in fields.items() if k.startswith(start)}


def take(x: Field, pick: Tensor) -> Field:
    """The entries of some clients."""
    return x[pick] if isinstance(x, Tensor) else x.take(pick)


def cat(xs: Sequence[Any]) -> Any:
    """Joins fields of one kind, client after client."""
    first = xs[0]
    if isinstance(first, Tensor):
        return torch.cat(list(xs))
    if isinstance(first, Ragged):
        return Ragged.cat(xs)
    return Rows(Ragged.cat([x.items for x in xs]), torch.cat([x.values for x in xs]), first.height)
