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
    """K different numbers below size in each row, every set equally likely; 0 where size is used up.

    Floyd's algorithm (Bentley and Floyd, 1987): a number drawn before gives way to the highest allowed.
    """
    rank_KT = torch.zeros_like(unit_TK.T, dtype=torch.long)
    many_T = size_T.clamp(max=len(rank_KT))
    for k, unit_T in enumerate(unit_TK.T):
        top_T = (size_T - many_T + k).clamp(min=0)
        draw_T = torch.minimum((unit_T * (top_T + 1)).long(), top_T)
        taken_T = (rank_KT[:k] == draw_T).any(0)
        rank_KT[k] = torch.where(taken_T, top_T, draw_T) * (k < many_T)
    return rank_KT.T


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
