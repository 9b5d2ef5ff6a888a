"""Negatives, drawn exactly uniformly from the items a client does not avoid, without rejection.

Rejection would make the length of a client's random stream depend on its data.
"""

import torch
from torch import Tensor

from .ragged import Ragged
from .rng import Rng

FEW = 16  # draws of a row that are cheaper one after the other on a CPU


def outside(avoid: Ragged, n_items: int, rank: Ragged) -> Tensor:
    """The rank-th item (from 0) that is not in a client's sorted, distinct `avoid` list, [T]."""
    stride = n_items + 1
    gap = avoid.values - avoid.place  # how many allowed items come before each avoided one
    keys = gap + avoid.owner * stride
    owner = rank.owner
    below = (
        torch.searchsorted(keys, rank.values + owner * stride, right=True)
        - avoid.offsets[:-1][owner]
    )
    return rank.values + below


def distinct_ranks(unit_TK: Tensor, size_T: Tensor) -> Tensor:
    """K different numbers below size in each row, every set equally likely; 0 where size is used up.

    Floyd's algorithm (Bentley and Floyd, 1987): a number drawn before gives way to the highest allowed.
    """
    k_K = torch.arange(unit_TK.shape[1], device=unit_TK.device)
    many_T1 = size_T.clamp(max=len(k_K))[:, None]
    spare_T1 = size_T[:, None] - many_T1
    top_TK = spare_T1 + k_K
    draw_TK = torch.minimum((unit_TK * (top_TK + 1)).long(), top_TK)
    by_turns = len(k_K) <= FEW and not unit_TK.is_cuda
    rank_TK = _by_turns(draw_TK, top_TK) if by_turns else _at_once(draw_TK, top_TK, spare_T1)
    return rank_TK * (k_K < many_T1)


def _by_turns(draw_TK: Tensor, top_TK: Tensor) -> Tensor:
    rank_KT, top_KT = draw_TK.T.contiguous(), top_TK.T
    for k in range(1, len(rank_KT)):
        taken_T = (rank_KT[:k] == rank_KT[k]).any(0)
        rank_KT[k] = torch.where(taken_T, top_KT[k], rank_KT[k])
    return rank_KT.T


def _at_once(draw_TK: Tensor, top_TK: Tensor, spare_T1: Tensor) -> Tensor:
    """The same in few steps, which a GPU and many draws ask for.

    All that was drawn before is taken. So is the highest of an earlier turn if that turn gave way; whether
    it did may hang on a turn before it, and so on: such chains are followed in leaps of doubling length.
    """
    value_TK, order_TK = draw_TK.sort(dim=1, stable=True)
    again_TK = torch.zeros_like(value_TK, dtype=torch.bool)
    again_TK[:, 1:] = value_TK[:, 1:] == value_TK[:, :-1]
    taken_TK = torch.zeros_like(again_TK).scatter_(1, order_TK, again_TK)
    k_K = torch.arange(draw_TK.shape[1], device=draw_TK.device)
    turn_TK = draw_TK - spare_T1  # whose highest was drawn
    turn_TK = torch.where((turn_TK >= 0) & (turn_TK < k_K), turn_TK, k_K)
    for _ in range(len(k_K).bit_length()):
        taken_TK = taken_TK | taken_TK.gather(1, turn_TK)
        turn_TK = turn_TK.gather(1, turn_TK)
    return torch.where(taken_TK, top_TK, draw_TK)


def negatives(
    avoid: Ragged, n_items: int, per_client: Tensor, count: int, rng: Rng
) -> tuple[Tensor, Tensor]:
    """`count` different items for each of a client's `per_client` positives.

    Returns items [T, count] and whether each exists (a client may know nearly every item).
    """
    unit = rng.ragged_uniform(per_client * count)
    size_C = n_items - avoid.lengths
    size_T = size_C.repeat_interleave(per_client, output_size=len(unit.values) // count)
    ranks_TK = distinct_ranks(unit.values.view(-1, count), size_T)
    exists_TK = torch.arange(count, device=size_T.device) < size_T[:, None]
    flat = Ragged(ranks_TK.flatten(), unit.offsets)
    items = outside(avoid, n_items, flat).clamp(max=n_items - 1)
    return items.view(-1, count), exists_TK
