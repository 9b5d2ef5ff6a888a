"""Clipping by the server: limits the norm of each client's whole upload (Sun et al., 2019)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from covey.core import Field, FieldDict, Rows

from .clip import ClipRows, factor


@dataclass(frozen=True)
class ClipClients(ClipRows):
    """Scales each client's update, all its parameters together, to a norm of at most `bound`.

    An uploaded model is clipped likewise. Where `relative`, the bound is that many times a quantile
    of the norms of the round's clients.
    """

    name: str = "clip clients"

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
