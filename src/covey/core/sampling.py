"""Draws negatives uniformly from the items that a client does not avoid, without rejection.

Rejection would make the length of a client's random stream depend on its data.
"""

import torch
from torch import Tensor

from .ragged import Ragged
from .rng import Rng

FEW = 16  # up to so many draws of a row are faster one after the other on a CPU


def outside(avoid: Ragged, n_items: int, rank: Ragged) -> Tensor:
    """The items [T] at some ranks, from 0, among those that a client does not avoid.

    `avoid` are sorted and distinct; `rank` has the ranks that each client asks for, T in all.
    """
    stride, owner = n_items + 1, rank.owner
    gap = avoid.values - avoid.place  # how many allowed items come before each avoided one
    keys = gap + avoid.owner * stride
    place = torch.searchsorted(keys, rank.values + owner * stride, right=True)
    return rank.values + place - avoid.offsets[:-1][owner]


def distinct_ranks(unit_TK: Tensor, size_T: Tensor) -> Tensor:
    """Draws K different numbers below a size in each row, every set with the same probability.

    `unit_TK` are uniform in [0, 1). Floyd's algorithm (Bentley and Floyd, 1987): a number that was
    drawn before is replaced by the highest one allowed. Returns the numbers, [T, K]; 0 where a row
    has fewer than K numbers.
    """
    k_K = torch.arange(unit_TK.shape[1], device=unit_TK.device)
    many_T1 = size_T.clamp(max=len(k_K))[:, None]
    spare_T1 = size_T[:, None] - many_T1
    top_TK = spare_T1 + k_K
    draw_TK = torch.minimum((unit_TK * (top_TK + 1)).long(), top_TK)
    few = len(k_K) <= FEW and not unit_TK.is_cuda
    rank_TK = _one_by_one(draw_TK, top_TK) if few else _at_once(draw_TK, top_TK, spare_T1)
    return rank_TK * (k_K < many_T1)


def _one_by_one(draw_TK: Tensor, top_TK: Tensor) -> Tensor:
    rank_KT, top_KT = draw_TK.T.contiguous(), top_TK.T
    for k in range(1, len(rank_KT)):
        taken_T = (rank_KT[:k] == rank_KT[k]).any(0)
        rank_KT[k] = torch.where(taken_T, top_KT[k], rank_KT[k])
    return rank_KT.T


def _at_once(draw_TK: Tensor, top_TK: Tensor, spare_T1: Tensor) -> Tensor:
    """Computes the same as `_one_by_one` in few steps, for a GPU or many draws.

    A number that was drawn before is taken. So is the highest number of an earlier draw if that
    draw was replaced, which may depend on a draw before it, and so on. Such chains are followed in
    jumps of doubling length.
    """
    value_TK, order_TK = draw_TK.sort(dim=1, stable=True)
    again_TK = torch.zeros_like(value_TK, dtype=torch.bool)
    again_TK[:, 1:] = value_TK[:, 1:] == value_TK[:, :-1]
    taken_TK = torch.zeros_like(again_TK).scatter_(1, order_TK, again_TK)
    k_K = torch.arange(draw_TK.shape[1], device=draw_TK.device)
    from_TK = draw_TK - spare_T1  # the earlier draw whose highest number was drawn
    from_TK = torch.where((from_TK >= 0) & (from_TK < k_K), from_TK, k_K)
    for _ in range(len(k_K).bit_length()):
        taken_TK = taken_TK | taken_TK.gather(1, from_TK)
        from_TK = from_TK.gather(1, from_TK)
    return torch.where(taken_TK, top_TK, draw_TK)


def negatives(
    avoid: Ragged, n_items: int, per_client: Tensor, count: int, rng: Rng
) -> tuple[Tensor, Tensor]:
    """Draws `count` different negatives for each positive, of which clients have `per_client` [C].

    Items of `avoid`, sorted and distinct, are not drawn. Returns the items, [T, count] for T
    positives in all, and whether each exists: a client may avoid nearly every item.
    """
    unit = rng.ragged_uniform(per_client * count)
    size_C = n_items - avoid.lengths
    size_T = size_C.repeat_interleave(per_client, output_size=len(unit.values) // count)
    ranks_TK = distinct_ranks(unit.values.view(-1, count), size_T)
    exists_TK = torch.arange(count, device=size_T.device) < size_T[:, None]
    flat = Ragged(ranks_TK.flatten(), unit.offsets)
    items = outside(avoid, n_items, flat).clamp(max=n_items - 1)
    return items.view(-1, count), exists_TK
