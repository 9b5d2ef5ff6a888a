"""Clipping by the server: no uploaded row counts for more than a bound (norm clipping, Sun et al., 2019)."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanism
from covey.contract.views import ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import Field, FieldDict, Rows


@dataclass(frozen=True)
class ClipRows(Mechanism):
    """Scales each row of every uploaded update and model to a norm of at most `bound`.

    A row is an item's vector, or the last dimension of a dense parameter. Where `relative`, the bound is
    so many times a quantile of the norms of the round's rows of that parameter, those of zeros left out.
    """

    bound: float = 1.0
    relative: bool = False
    quantile: float = 0.5  # the median
    name: str = "clip rows"

    def __post_init__(self) -> None:
        over_zero(self.name, self.bound, self.quantile)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return replace(upload, update=self._each(upload.update), model=self._each(upload.model))

    def _each(self, drawer: FieldDict) -> FieldDict:
        return {name: self._one(value) for name, value in drawer.items()}

    def _one(self, value: Field) -> Field:
        if isinstance(value, Rows):
            return replace(value, values=self._clip(value.values))
        assert isinstance(value, Tensor)
        return self._clip(value)

    def _clip(self, x: Tensor) -> Tensor:
        norm = x.norm(dim=-1, keepdim=True)
        return x * factor(norm, self.bound, self.relative, self.quantile)


def factor(norm: Tensor, bound: float, relative: bool, quantile: float = 0.5) -> Tensor:
    """What brings norms down to a bound: min(1, b / norm); nothing changes where all norms are zero."""
    if math.isinf(bound):  # else infinity over infinity
        return torch.ones_like(norm)
    if not relative:
        return bound / norm.clamp(min=bound)
    some = norm[norm > 0]
    if not len(some):
        return torch.ones_like(norm)
    limit = bound * some.kthvalue(int(quantile * (len(some) - 1)) + 1).values
    return limit / torch.maximum(norm, limit)


def over_zero(name: str, bound: float, quantile: float = 0.5) -> None:
    if not bound > 0:
        raise CoveyError(f"{name}: bound = {bound}; a norm over 0 is needed")
    if not 0 < quantile < 1:
        raise CoveyError(
            f"{name}: quantile = {quantile}; it is a share of the round's norms, such as 0.99"
        )
