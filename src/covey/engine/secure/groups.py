"""Sums over small groups of clients, drawn anew for each sum, so that a part that is far too long shows in its group.

The server reads the sum of each group and still no part. A client may say anything; but a row of the sum of its
group is then about as long as what it says there, and a group whose longest row is much longer than that of most is
left out, with all in it. What is no longer than a row of an honest group passes, whatever it says.
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
    ids_C: Tensor
    sums: Floats
    longest: dict[str, float]  # by field: the length of its longest row


def drawn(ids_C: Tensor, size: int, run: int, round: int, step: str) -> list[Tensor]:
    """The places of each group's clients, by ascending id: groups of at least so many, by lot; 0: all are one."""
    order_C = ids_C.argsort()
    many = max(1, len(ids_C) // size) if size else 1
    if many == 1:
        return [order_C]
    lot_C = (
        Rng.server(run, round, f"groups of {step}s")
        .uniform(len(ids_C))[0]
        .argsort()
        .to(order_C.device)
    )
    return [order_C[place_G.sort().values] for place_G in lot_C.tensor_split(many)]


def within(groups: Sequence[GroupSum], most: float) -> list[bool]:
    """Whether no field of a group has a row of more than so many times the median group's longest; 0: no check."""
    if not most or not groups:
        return [True] * len(groups)
    usual = {
        name: float(np.median([g.longest[name] for g in groups])) for name in groups[0].longest
    }
    return [all(g.longest[name] <= most * usual[name] for name in usual) for g in groups]


def added(groups: Sequence[GroupSum]) -> tuple[Tensor, Floats]:
    return torch.cat([g.ids_C for g in groups]), np.sum([g.sums for g in groups], axis=0)
