"""HiCS: hierarchical clipping with sparsified updating, a defence against promoted items.

Yuan et al., "Manipulating Federated Recommender Systems: Poisoning with Synthetic Users and Its
Countermeasures", SIGIR 2023; written from descriptions of the paper by others, not from its text.
`HiCS` aggregates with two levels of clipping. `Bank` is the server step used with it, which applies
only the largest accumulated rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.aggregate.combine import ItemMean, Mean, Sum
from covey.core import CoveyError, Field, FieldDict, Fields, Rows, Total, Upload
from covey.mechanism import Combine, Reads, ServerStep

from .clip import check_bound, factor
from .clip_clients import ClipClients, scaled, squares
from .rows import Scale

Level = Literal["row", "client", "item"]


@dataclass(frozen=True)
class HiCS(Combine):
    """Clips uploads at each level in turn; the level "item" comes last and clips combined rows.

    A bound is a multiple of the median norm at its level, or where not `relative` the norm itself.
    A row is an item's vector, or another parameter as a whole. Uploaded models are not clipped.
    """

    levels: tuple[Level, ...] = ("row", "item")
    bounds: tuple[float, ...] = (2.0, 2.0)  # b1, b2
    relative: bool = True
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.bounds) or "item" in self.levels[:-1]:
            raise CoveyError('hics: give each of levels a bound; "item" comes last, if at all')
        for bound in self.bounds:
            check_bound("hics", bound)

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        if isinstance(upload, Total):
            wrong = "HiCS clips single uploads, but only their sum is available"
            raise CoveyError(f"{wrong}; use a linear combine")
        clipped: FieldDict = {k: v for k, v in upload.update.items() if k in names}
        for level, bound in zip(self.levels, self.bounds, strict=True):
            if level == "client":
                clipped = ClipClients(bound, self.relative).clip(clipped)
            elif level == "row":
                clipped = {k: self._rows(v, bound) for k, v in clipped.items()}
        linear = {"mean": ItemMean(), "sum": Sum(), "everybody": Mean()}[self.scale]
        update, model = linear.combine(replace(upload, update=clipped), names)
        if "item" in self.levels:
            bound = self.bounds[-1]
            update = {k: self._combined(clipped[k], v, bound) for k, v in update.items()}
        return update, model

    def _rows(self, value: Field, bound: float) -> Field:  # level 1, (7) 1
        if isinstance(value, Rows):
            norm_T = value.values.flatten(1).norm(dim=1)
            s_T = factor(norm_T, bound, self.relative).view(-1, *[1] * (value.values.dim() - 1))
            return replace(value, values=value.values * s_T)
        return scaled(value, factor(squares(value).sqrt(), bound, self.relative))

    def _combined(self, value: Field, update: Tensor, bound: float) -> Tensor:  # level 2, (7) 3
        """Clips rows of a table; another parameter is one row and has only an absolute bound."""
        if not isinstance(value, Rows):
            return update if self.relative else update * factor(update.norm(), bound, False)
        s_I = factor(update.flatten(1).norm(dim=1), bound, self.relative)
        return update * s_I.view(-1, *[1] * (update.dim() - 1))


@dataclass(frozen=True)
class Bank(ServerStep):
    """Accumulates updates of `banked` parameters and applies the largest rows (error feedback)."""

    share: float = 0.5  # gamma, of the rows that are not zero; 1 applies all of them
    decay: float = 1.0  # multiplies the waiting rows in each round; below 1 old updates fade
    rate: float = 1.0
    banked: tuple[str, ...] = ("items",)
    name: str = "server step"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1 or not 0 <= self.decay <= 1:
            raise CoveyError("bank: share is over 0 and at most 1, decay from 0 to 1")

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        memory, params = dict(memory), dict(params)
        for name, d in update.items():
            if name in self.banked:
                saved = memory[name] * self.decay + d if name in memory else d
                norm_I = saved.flatten(1).norm(dim=1)
                many = math.ceil(self.share * int((norm_I > 0).sum()) - 1e-9)
                out_I = torch.zeros_like(norm_I, dtype=torch.bool)
                out_I = out_I.index_fill_(0, norm_I.topk(many).indices, True)
                out_I = out_I.view(-1, *[1] * (d.dim() - 1))
                memory[name], d = saved.masked_fill(out_I, 0), saved.masked_fill(~out_I, 0)
            params[name] = torch.add(params[name], d, alpha=self.rate)
        return memory, params
