"""Negatives, drawn exactly uniformly from the items a client does not avoid, without rejection.

Rejection would make the length of a client's random stream depend on its data.
"""

import torch
from torch import Tensor

from .core import Ragged
from .rng import Rng


def outside(avoid: Ragged, n_items: int, rank: Ragged) -> Tensor:
    """The rank-th item (from 0) that is not in a client's sorted, distinct `avoid` list, [T]."""
    stride = n_items + 1
    gap = avoid.values - avoid.place  # how many allowed items come before each avoided one
    keys = gap + avoid.owner * stride
    owner = rank.owner
    below = torch.searchsorted(keys, rank.values + owner * stride, right=True) - avoid.offsets[:-1][owner]
    return rank.values + below


def distinct_ranks(unit_TK: Tensor, size_T: Tensor) -> Tensor:
    """K different numbers below size in each row, uniform over ordered choices; 0 where size is used up."""
    picked: list[Tensor] = []
    for k in range(unit_TK.shape[1]):
        left_T = (size_T - k).clamp(min=1)
        r_T = torch.minimum((unit_TK[:, k] * left_T).long(), left_T - 1)
        for earlier_T in torch.stack(picked, 1).sort(1).values.unbind(1) if picked else ():
            r_T = r_T + (r_T >= earlier_T)  # skip what was taken, lowest first
        picked.append(torch.where(size_T > k, r_T, 0))
    return torch.stack(picked, 1)


def negatives(avoid: Ragged, n_items: int, per_client: Tensor, count: int, rng: Rng) -> tuple[Tensor, Tensor]:
    """`count` different items for each of a client's `per_client` positives.

    Returns items [T, count] and whether each exists (a client may know nearly every item).
    """
    unit = rng.ragged_uniform(per_client * count)
    size_C = n_items - avoid.lengths
    size_T = size_C.repeat_interleave(per_client)
    ranks_TK = distinct_ranks(unit.values.view(-1, count), size_T)
    exists_TK = torch.arange(count, device=size_T.device) < size_T[:, None]
    flat = Ragged(ranks_TK.flatten(), unit.offsets)
    items = outside(avoid, n_items, flat).clamp(max=n_items - 1)
    return items.view(-1, count), exists_TK
