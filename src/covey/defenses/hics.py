"""HiCS: hierarchical clipping with sparsified updating (Yuan et al., Manipulating Federated Recommender Systems, 2023).

From descriptions of the paper by others, not from its text: two levels of clipping (`HiCS`, a combine), and
a bank that lets only the largest accumulated rows through (`Bank`, a server step). They go together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from covey.aggregate.combine import ItemMean, Mean, Sum
from covey.contract.aggregation import Combine, ServerStep
from covey.contract.views import Reads
from covey.core.errors import CoveyError
from covey.core.messages import Total, Upload
from covey.core.ragged import Field, FieldDict, Fields, Rows

from .clip import factor, over_zero
from .clip_clients import ClipClients, scaled, squares
from .rows import Scale

Level = Literal["row", "client", "item"]


@dataclass(frozen=True)
class HiCS(Combine):
    """Clips uploads by each level in turn, and the combined rows by the level "item", which comes last.

    A bound is so many times the median norm at its level, or where not `relative` the norm itself. A row is
    an item's vector, or another parameter as a whole. Uploaded models are averaged as they are.
    """

    levels: tuple[Level, ...] = ("row", "item")
    bounds: tuple[float, ...] = (2.0, 2.0)  # b1, b2
    relative: bool = True
    scale: Scale = "mean"
    reads_uploads: Reads = "each"

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.bounds) or "item" in self.levels[:-1]:
            raise CoveyError(
                'hics: give each of levels its bound; "item" comes last, as it clips what was combined'
            )
        for bound in self.bounds:
            over_zero("hics", bound)

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        if isinstance(upload, Total):
            raise CoveyError(
                "HiCS clips single uploads, and only their sum is here; use a linear combine"
            )
        upload = replace(upload, update={k: v for k, v in upload.update.items() if k in names})
        for level, bound in zip(self.levels, self.bounds, strict=True):
            if level == "client":
                upload = replace(
                    upload, update=ClipClients(bound, self.relative).clip(upload.update)
                )
            elif level == "row":
                upload = replace(
                    upload, update={k: self._rows(v, bound) for k, v in upload.update.items()}
                )
        linear = {"mean": ItemMean(), "sum": Sum(), "everybody": Mean()}[self.scale]
        update, model = linear.combine(upload, names)
        if "item" in self.levels:
            update = {
                k: self._combined(upload.update[k], v, self.bounds[-1]) for k, v in update.items()
            }
        return update, model

    def _rows(self, value: Field, bound: float) -> Field:  # level 1, (7) 1
        if isinstance(value, Rows):
            norm_T = value.values.flatten(1).norm(dim=1)
            s_T = factor(norm_T, bound, self.relative).view(-1, *[1] * (value.values.dim() - 1))
            return replace(value, values=value.values * s_T)
        return scaled(value, factor(squares(value).sqrt(), bound, self.relative))

    def _combined(self, value: Field, update: Tensor, bound: float) -> Tensor:  # level 2, (7) 3
        """The rows of a table against each other; another parameter is alone, and has only an absolute bound."""
        if not isinstance(value, Rows):
            return update if self.relative else update * factor(update.norm(), bound, False)
        s_I = factor(update.flatten(1).norm(dim=1), bound, self.relative)
        return update * s_I.view(-1, *[1] * (update.dim() - 1))


@dataclass(frozen=True)
class Bank(ServerStep):
    """Adds what the largest rows of a table have saved up; the others wait (error feedback).

    `share` is gamma, of the rows that hold something; 1 lets all through, as adding does. Other parameters
    are added at once.
    """

    share: float = 0.5
    decay: float = 1.0  # of what waits, each round; below 1 what is old fades
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
                out_I = self._largest(saved.flatten(1).norm(dim=1)).view(-1, *[1] * (d.dim() - 1))
                memory[name], d = saved.masked_fill(out_I, 0), saved.masked_fill(~out_I, 0)
            params[name] = torch.add(params[name], d, alpha=self.rate)
        return memory, params

    def _largest(self, norm_I: Tensor) -> Tensor:
        """Which rows are let through, [I] bool."""
        many = math.ceil(self.share * int((norm_I > 0).sum()) - 1e-9)
        return torch.zeros_like(norm_I, dtype=torch.bool).index_fill_(
            0, norm_I.topk(many).indices, True
        )
