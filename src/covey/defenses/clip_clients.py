"""Clipping by the server: limits the norm of each client's whole upload (Sun et al., 2019)."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import Field, FieldDict, Rows, Upload
from covey.mechanism import Mechanism, ServerView

from .clip import check_bound, factor


@dataclass(frozen=True)
class ClipClients(Mechanism):
    """Scales each client's update, all its parameters together, to a norm of at most `bound`.

    An uploaded model is clipped likewise. Where `relative`, the bound is that many times a quantile
    of the norms of the round's clients.
    """

    bound: float = 1.0
    relative: bool = False
    quantile: float = 0.5  # the median
    name: str = "clip clients"

    def __post_init__(self) -> None:
        check_bound(self.name, self.bound, self.quantile)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return replace(upload, update=self.clip(upload.update), model=self.clip(upload.model))

    def clip(self, fields: FieldDict) -> FieldDict:
        if not fields:
            return fields
        square_C = torch.stack([squares(value) for value in fields.values()]).sum(0)
        s_C = factor(square_C.sqrt(), self.bound, self.relative, self.quantile)
        return {name: scaled(value, s_C) for name, value in fields.items()}


def squares(value: Field) -> Tensor:
    """The squared norm of each client's part, [C], in double precision."""
    if isinstance(value, Rows):
        row_T = value.values.flatten(1).double().square().sum(1)
        return row_T.new_zeros(len(value)).index_add_(0, value.items.owner, row_T)
    assert isinstance(value, Tensor)
    return value.flatten(1).double().square().sum(1)


def scaled(value: Field, s_C: Tensor) -> Field:
    """Multiplies each client's part by its factor."""
    if isinstance(value, Rows):
        return value.scaled(s_C)
    assert isinstance(value, Tensor)
    return value * s_C.view(-1, *[1] * (value.dim() - 1)).to(value)
