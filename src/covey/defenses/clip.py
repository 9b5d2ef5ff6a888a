"""Clipping by the server: limits the norm of each uploaded row (Sun et al., 2019)."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import CoveyError, FieldDict, Rows, Upload
from covey.mechanism import Mechanism, ServerView


@dataclass(frozen=True)
class ClipRows(Mechanism):
    """Scales each row of every uploaded update and model to a norm of at most `bound`.

    A row is an item's vector, or the last dimension of a dense parameter. Where `relative`, the
    bound is that many times a quantile of the norms of the round's nonzero rows of that parameter.
    """

    bound: float = 1.0
    relative: bool = False
    quantile: float = 0.5  # the median
    name: str = "clip rows"

    def __post_init__(self) -> None:
        check_bound(self.name, self.bound, self.quantile)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return replace(upload, update=self.clip(upload.update), model=self.clip(upload.model))

    def clip(self, fields: FieldDict) -> FieldDict:
        def clipped(x: Tensor) -> Tensor:
            norm = x.norm(dim=-1, keepdim=True)
            return x * factor(norm, self.bound, self.relative, self.quantile)

        return {
            name: replace(x, values=clipped(x.values)) if isinstance(x, Rows) else clipped(x)
            for name, x in fields.items()
        }


def factor(norm: Tensor, bound: float, relative: bool, quantile: float = 0.5) -> Tensor:
    """What to multiply vectors of these norms with to clip them: min(1, limit / norm).

    The limit is `bound`, or where `relative` that many times a quantile of the norms over zero. If
    all norms are zero, a relative bound changes nothing.
    """
    if math.isinf(bound):  # avoids infinity over infinity
        return torch.ones_like(norm)
    if not relative:
        return bound / norm.clamp(min=bound)
    some = norm[norm > 0]
    if not len(some):
        return torch.ones_like(norm)
    limit = bound * some.kthvalue(int(quantile * (len(some) - 1)) + 1).values
    return limit / torch.maximum(norm, limit)


def check_bound(name: str, bound: float, quantile: float = 0.5) -> None:
    """Refuses options that `factor` cannot use."""
    if not bound > 0:
        raise CoveyError(f"{name}: bound = {bound}; a norm over 0 is needed")
    if not 0 < quantile < 1:
        wrong = f"{name}: quantile = {quantile}; it is a share of the round's norms, such as 0.99"
        raise CoveyError(wrong)
