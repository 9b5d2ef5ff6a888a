"""From the total of one client's upload to a dense vector, and from a sum of these to a total."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from covey.aggregate.fold import total_of
from covey.core import CoveyError, Fields, Total, Upload

from .fixed_point import Floats


@dataclass(frozen=True)
class Slot:
    """A tensor of a total and its place in the vector."""

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def field(self) -> str:
        """The field of an upload that the numbers come from, as the ledger names it."""
        return self.path.removeprefix("extra/").replace("touched/", "update/")


@dataclass(frozen=True)
class Layout:
    """Which numbers of a vector belong to which field."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, total: Total) -> "Layout":
        return cls(tuple(Slot(path, tuple(x.shape), x.dtype) for path, x in _fields(total)))

    @property
    def length(self) -> int:
        return sum(slot.size for slot in self.slots)

    def fields(self) -> dict[str, int]:
        """How many numbers come from each field of an upload."""
        names = dict.fromkeys(slot.field for slot in self.slots)
        return {name: sum(slot.size for slot in self.slots if slot.field == name) for name in names}

    def vector(self, total: Total) -> Floats | None:
        """The vector of one client; None if its fields have other shapes."""
        if Layout.of(total) != self:
            return None
        flat = [x.detach().reshape(-1).double().cpu() for _, x in _fields(total)]
        return torch.cat(flat).numpy()

    def _pieces(self, sums: Floats) -> Iterator[tuple[Slot, Floats]]:
        ends = np.cumsum([slot.size for slot in self.slots])
        yield from zip(self.slots, np.split(sums, ends[:-1]), strict=True)

    def longest(self, sums: Floats) -> dict[str, float]:
        """The length of the longest row, by field."""
        out: dict[str, float] = {}
        for slot, numbers in self._pieces(sums):
            row_IW = numbers.reshape(-1, slot.shape[-1] if len(slot.shape) > 1 else 1)
            out[slot.path] = float(np.sqrt(np.einsum("iw,iw->i", row_IW, row_IW).max(initial=0.0)))
        return out

    def total(self, ids_C: Tensor, sums: Floats) -> Total:
        """The total from a vector of sums, on the device of the ids and in each field's type."""
        parts: dict[str, Fields] = {}
        for slot, numbers in self._pieces(sums):
            some = torch.from_numpy(numbers.copy()).reshape(slot.shape)
            some = some if slot.dtype.is_floating_point else some.round()
            kind, _, name = slot.path.rpartition("/")
            parts.setdefault(kind, {})[name] = some.to(ids_C.device, slot.dtype)
        weight = parts.pop("")["weight"]
        update, model, touched = (parts.pop(k, {}) for k in ("update", "model", "touched"))
        extra = {k.removeprefix("extra/"): v for k, v in parts.items()}
        return Total(ids_C, weight, update, model, touched, extra)


def part_of(upload: Upload, row: int) -> Total:
    """The total of one client, which is one row of an upload."""
    try:
        return total_of(upload.take(torch.tensor([row], device=upload.ids_C.device)))
    except ValueError as error:
        raise CoveyError(f"{error}; this method cannot run on secure sums") from error


def nothing(ids_C: Tensor) -> Total:
    """The total of no client, after a sum failed."""
    return Total(ids_C[:0], torch.zeros((), device=ids_C.device))


def _fields(total: Total) -> Iterator[tuple[str, Tensor]]:
    yield "weight", total.weight
    kinds = {"update": total.update, "model": total.model, "touched": total.touched}
    kinds |= {f"extra/{name}": total.extra[name] for name in sorted(total.extra)}
    for kind, fields in kinds.items():
        yield from ((f"{kind}/{name}", fields[name]) for name in sorted(fields))
