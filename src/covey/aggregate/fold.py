"""Sums of uploads, chunk by chunk and in the order of the clients, so a million never exist at once.

Adding in a fixed order gives the same bits however the cohort is cut into chunks.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core.messages import Total, Upload
from covey.core.ragged import Field, FieldDict, Fields, Ragged, Rows

ROWS_AT_ONCE = 256


@dataclass
class Fold:
    ids: list[Tensor] = field(default_factory=list)
    weight: Tensor | None = None
    sums: dict[str, Tensor] = field(default_factory=dict)  # by path, such as "update/items"
    touched: Fields = field(default_factory=dict)

    def add(self, upload: Upload) -> None:
        self.ids.append(upload.ids_C)
        self._sum("weight", upload.weight_C)
        for kind, drawer in _drawers(upload).items():
            weighted = kind in ("update", "model")
            for name, value in drawer.items():
                self._sum(f"{kind}/{name}", _weigh(value, upload.weight_C) if weighted else value)
                if kind == "update" and isinstance(value, Rows):
                    self._touch(name, value, upload.weight_C)

    def add_total(self, total: Total) -> None:
        """A part that was summed where it was computed."""
        self.ids.append(total.ids_C)
        self._join("weight", total.weight)
        for name, value in total.update.items():
            self._join(f"update/{name}", value)
        for name, value in total.touched.items():
            self.touched[name] = (
                self.touched[name] + value if name in self.touched else value.clone()
            )

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
            raise ValueError(
                f"{path} holds lists, which have no sum; the mechanism must hear each report"
            )
        if isinstance(value, Rows):
            acc = self.sums.setdefault(
                path, value.values.new_zeros(value.height, *value.values.shape[1:])
            )
            acc.index_add_(0, value.items.values, value.values)
            return
        acc = self.sums.setdefault(path, value.new_zeros(value.shape[1:]))
        first = torch.zeros(len(value), dtype=torch.long, device=value.device)
        acc.unsqueeze(0).index_add_(0, first, value)  # one after the other, unlike sum(0)

    def _touch(self, name: str, value: Rows, weight_C: Tensor) -> None:
        acc = self.touched.setdefault(name, weight_C.new_zeros(value.height))
        acc.index_add_(0, value.items.values, weight_C.repeat_interleave(value.items.lengths))

    def _join(self, path: str, value: Tensor) -> None:
        self.sums[path] = self.sums[path] + value if path in self.sums else value.clone()


def _drawers(upload: Upload) -> dict[str, FieldDict]:
    return {
        "update": upload.update,
        "model": upload.model,
        **{f"extra/{k}": v for k, v in upload.extra.items()},
    }


def _weigh(value: Field, weight_C: Tensor) -> Field:
    if bool((weight_C == 1).all()):
        return value
    if isinstance(value, Rows):
        return value.scaled(weight_C)
    assert isinstance(value, Tensor)
    return value * weight_C.view(-1, *[1] * (value.dim() - 1)).to(value)


def total_of(upload: Upload | Total, some: Tensor | None = None) -> Total:
    """The sum of an upload, or of some of its rows, few of them copied at a time."""
    if isinstance(upload, Total):
        return upload
    fold = Fold()
    for part in [upload] if some is None else map(upload.take, some.split(ROWS_AT_ONCE)):
        fold.add(part)
    return fold.total()
