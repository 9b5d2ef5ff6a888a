"""Sums uploads chunk by chunk, so that not all uploads of a large cohort are in memory at once.

Every number is rounded to a fixed unit and added as an integer (`covey.core.fixed_point`), so the
bits of a sum do not depend on chunks, worker processes or the order of the clients.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from covey.core import Answers, Field, FieldDict, Fields, Ragged, Rows, Total, Upload
from covey.core.fixed_point import Scales, decode, encode

AT_ONCE = 1 << 19  # numbers that are rounded at a time, so that they stay in the cache
CLIENTS_AT_ONCE = 256  # clients of a group whose uploads are copied at a time


@dataclass
class Fold:
    """A running sum of uploads as integers, by path, such as "update/items" or "extra/m/rows"."""

    scales: Scales
    ids: list[Tensor] = field(default_factory=list)
    sums: Fields = field(default_factory=dict)
    types: dict[str, torch.dtype] = field(default_factory=dict)  # of the fields, by path

    def add(self, upload: Upload) -> None:
        self.ids.append(upload.ids_C)
        self._sum("weight", upload.weight_C)
        extra = {f"extra/{mechanism}": fields for mechanism, fields in upload.extra.items()}
        kinds: dict[str, FieldDict] = {"update": upload.update, "model": upload.model, **extra}
        for kind, fields in kinds.items():
            weighted = kind in ("update", "model")
            for name, value in fields.items():
                self._sum(f"{kind}/{name}", _weigh(value, upload.weight_C) if weighted else value)
                if kind == "update" and isinstance(value, Rows):
                    weight_T = upload.weight_C.repeat_interleave(value.items.lengths)
                    self._sum(f"touched/{name}", replace(value, values=weight_T))

    def add_total(self, total: Total) -> None:
        """Adds clients whose updates were summed as floating-point numbers, in a fixed order."""
        self.ids.append(total.ids_C)
        kinds = {"update": total.update, "touched": total.touched}
        paths = {f"{kind}/{k}": v for kind, fields in kinds.items() for k, v in fields.items()}
        for path, value in {"weight": total.weight, **paths}.items():
            self._sum(path, value[None])

    def merge(self, other: "Fold") -> None:
        """Adds the clients of another sum with the same scales."""
        self.ids += other.ids
        self.types |= other.types
        for path, value in other.sums.items():
            self.sums[path] = self.sums[path].add_(value) if path in self.sums else value

    def total(self) -> Total:
        """Returns the sums so far as floating-point numbers."""
        ids_C = torch.cat(self.ids) if self.ids else torch.zeros(0, dtype=torch.long)
        kinds: dict[str, Fields] = {}
        for path, value in self.sums.items():
            kind, _, name = path.rpartition("/")
            dtype = self.types[path]
            if dtype.is_floating_point:
                value = decode(value, self._fraction(path), dtype)
            kinds.setdefault(kind, {})[name] = value
        weight = kinds.pop("", {}).get("weight", torch.zeros(()))
        update, model, touched = (kinds.pop(k, {}) for k in ("update", "model", "touched"))
        extra = {kind.removeprefix("extra/"): fields for kind, fields in kinds.items()}
        return Total(ids_C, weight, update, model, touched, extra)

    def _fraction(self, path: str) -> int:
        """The bits after the point; the touched rows of a table are counted by weight."""
        touched = path.startswith("touched/")
        return self.scales.fraction("weight" if touched else path.removeprefix("extra/"))

    def _sum(self, path: str, value: Field) -> None:
        if isinstance(value, Ragged):
            raise ValueError(f"{path} holds lists, which have no sum; it needs single uploads")
        flat = value if isinstance(value, Tensor) else value.values
        shape = flat.shape[1:] if isinstance(value, Tensor) else (value.height, *flat.shape[1:])
        if path not in self.sums:
            self.sums[path] = flat.new_zeros(shape, dtype=torch.int64)
            self.types[path] = flat.dtype
        acc, fraction = self.sums[path], self._fraction(path)
        step = max(AT_ONCE // max(flat[:1].numel(), 1), 1)
        for start in range(0, len(flat), step):
            some = flat[start : start + step]
            some = encode(some, fraction) if some.is_floating_point() else some.long()
            if isinstance(value, Rows):
                acc.index_add_(0, value.items.values[start : start + step], some)
            else:
                acc += some.sum(0)


def _weigh(value: Field, weight_C: Tensor) -> Field:
    if bool((weight_C == 1).all()):
        return value
    if isinstance(value, Rows):
        return value.scaled(weight_C)
    assert isinstance(value, Tensor)
    return value * weight_C.view(-1, *[1] * (value.dim() - 1)).to(value)


def total_of(upload: Answers, some: Tensor | None = None, scales: Scales | None = None) -> Total:
    """Returns the sum of all rows of an upload, or of those at the places `some`; a total as it is.

    `scales` are the declared ranges of the fields; without them, they are measured.
    """
    if isinstance(upload, Total):
        return upload
    sizes = {} if scales else _sizes(upload)
    fold = Fold(scales or Scales(len(upload), sizes))
    for part in [upload] if some is None else map(upload.take, some.split(CLIENTS_AT_ONCE)):
        fold.add(part)
    total = fold.total()
    if math.inf not in sizes.values():
        return total
    for kind, fields in {"update": total.update, "model": total.model, **total.extra}.items():
        for name, value in fields.items():
            if math.inf in (sizes[f"{kind}/{name}"], sizes["weight"]):
                value.fill_(math.nan)  # integers cannot say it
    return total


def _sizes(upload: Upload) -> dict[str, float]:
    """The largest number of each field, at least 2^-20; infinite for one that is not finite."""
    found: dict[str, float] = {}
    for path, value in upload.fields():
        x = value if isinstance(value, Tensor) else value.values
        most = float(torch.stack(x.aminmax()).abs().max()) if x.numel() else 0.0
        found[path] = max(most, 2.0**-20) if math.isfinite(most) else math.inf
    return found
