"""Sums over small random groups of clients, in which a contribution that is far too long shows.

If a client contributes a very long row, that row of its group's sum is about as long. A group whose
longest row is much longer than that of the median group is left out with all its clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from covey.core.rng import Rng

from .fixed_point import Floats


@dataclass(frozen=True)
class GroupSum:
    """The sum of a group."""

    ids_C: Tensor
    sums: Floats
    longest: dict[str, float]  # by field: the length of its longest row


def drawn(ids_C: Tensor, size: int, run: int, round: int, step: str) -> list[Tensor]:
    """Places of groups of at least `size` clients in `ids_C`, by ascending id; 0: one group."""
    order_C = ids_C.argsort()
    many = max(1, len(ids_C) // size) if size else 1
    if many == 1:
        return [order_C]
    rng = Rng.server(run, round, f"groups of {step}s")
    random_C = rng.uniform(len(ids_C))[0].argsort().to(order_C.device)
    return [order_C[place_G.sort().values] for place_G in random_C.tensor_split(many)]


def within(groups: Sequence[GroupSum], most: float) -> list[bool]:
    """Whether no row of a group is longer than `most` times the median group's longest; 0: any."""
    if not most or not groups:
        return [True] * len(groups)
    names = groups[0].longest
    usual = {name: float(np.median([g.longest[name] for g in groups])) for name in names}
    return [all(g.longest[name] <= most * usual[name] for name in names) for g in groups]


def added(groups: Sequence[GroupSum]) -> tuple[Tensor, Floats]:
    """The clients and the sum of several groups."""
    return torch.cat([g.ids_C for g in groups]), np.sum([g.sums for g in groups], axis=0)
