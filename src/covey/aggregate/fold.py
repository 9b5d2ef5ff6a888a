"""Sums uploads chunk by chunk, so that not all uploads of a large cohort are in memory at once.

Clients are added one after the other in their order, so the bits do not depend on the chunks.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core.messages import Total, Upload
from covey.core.ragged import Field, FieldDict, Fields, Ragged, Rows

ROWS_AT_ONCE = 256


@dataclass
class Fold:
    """A running sum of uploads."""

    ids: list[Tensor] = field(default_factory=list)
    sums: dict[str, Tensor] = field(default_factory=dict)  # by path, such as "update/items"
    touched: Fields = field(default_factory=dict)

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
                    self._touch(name, value, upload.weight_C)

    def add_total(self, total: Total) -> None:
        """Adds clients whose updates were summed where they were computed."""
        self.ids.append(total.ids_C)
        _add_to(self.sums, "weight", total.weight)
        for name, value in total.update.items():
            _add_to(self.sums, f"update/{name}", value)
        for name, value in total.touched.items():
            _add_to(self.touched, name, value)

    def total(self) -> Total:
        ids_C = torch.cat(self.ids) if self.ids else torch.zeros(0, dtype=torch.long)
        parts: dict[str, Fields] = {}
        for path, value in self.sums.items():
            kind, _, name = path.rpartition("/")
            parts.setdefault(kind, {})[name] = value
        weight = parts.pop("", {}).get("weight", torch.zeros(()))
        update, model = parts.pop("update", {}), parts.pop("model", {})
        extra = {kind.removeprefix("extra/"): fields for kind, fields in parts.items()}
        return Total(ids_C, weight, update, model, self.touched, extra)

    def _sum(self, path: str, value: Field) -> None:
        if isinstance(value, Ragged):
            raise ValueError(f"{path} holds lists, which have no sum; it needs single uploads")
        if isinstance(value, Rows):
            zeros = value.values.new_zeros(value.height, *value.values.shape[1:])
            self.sums.setdefault(path, zeros).index_add_(0, value.items.values, value.values)
            return
        acc = self.sums.setdefault(path, value.new_zeros(value.shape[1:]))
        first = torch.zeros(len(value), dtype=torch.long, device=value.device)
        acc.unsqueeze(0).index_add_(0, first, value)  # one after the other, unlike sum(0)

    def _touch(self, name: str, value: Rows, weight_C: Tensor) -> None:
        acc = self.touched.setdefault(name, weight_C.new_zeros(value.height))
        acc.index_add_(0, value.items.values, weight_C.repeat_interleave(value.items.lengths))


def _add_to(sums: dict[str, Tensor], path: str, value: Tensor) -> None:
    sums[path] = sums[path] + value if path in sums else value.clone()


def _weigh(value: Field, weight_C: Tensor) -> Field:
    if bool((weight_C == 1).all()):
        return value
    if isinstance(value, Rows):
        return value.scaled(weight_C)
    assert isinstance(value, Tensor)
    return value * weight_C.view(-1, *[1] * (value.dim() - 1)).to(value)


def total_of(upload: Upload | Total, some: Tensor | None = None) -> Total:
    """Returns the sum of the rows of an upload, or of the rows `some`; a total as it is."""
    if isinstance(upload, Total):
        return upload
    fold = Fold()
    for part in [upload] if some is None else map(upload.take, some.split(ROWS_AT_ONCE)):
        fold.add(part)
    return fold.total()
