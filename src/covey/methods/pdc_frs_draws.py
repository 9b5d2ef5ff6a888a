"""The lists that clients contribute to PDC-FRS, each item replaced at random by a similar one.

Draws are made by item and not by interaction: the distribution of an item is computed once, however
many clients have it. Shape suffixes: T = positions of all lists, B = items at a time, K = draws.
"""

from typing import Literal

import torch
from torch import Tensor

from covey.core import Ragged, Rng, offsets_of
from covey.privacy.exponential import probabilities
from covey.privacy.library import choose

from .titles import ROWS, Likeness

Contribute = Literal["perturbed", "uniform", "clean"]
Noise = Literal["simulated", "opendp"]
SAMPLE = 2048  # items from which the share of kept ones is computed


def contribution(
    own: Ragged,
    rng: Rng,
    contribute: Contribute,
    like: Likeness,
    epsilon: float,
    length: int,
    noise: Noise = "simulated",
) -> Ragged:
    """Draws the list that each client contributes from its `own` items.

    A client without items draws uniformly. No output is more than e^(epsilon / 2) likelier from any
    item than from none, so the guarantee of a position covers that too. If `length` is over 0, so
    many positions are drawn from each list. Draws come from `rng` or, by OpenDP, the device.
    """
    empty_C = own.lengths == 0
    if length:
        many_C = torch.full_like(own.lengths, length) * (~empty_C if contribute == "clean" else 1)
        unit = rng.fold("positions").ragged_uniform(many_C)
        place = (unit.values * own.lengths[unit.owner]).long() + own.offsets[:-1][unit.owner]
        # The item after the last one is for clients that have none.
        values = torch.cat([own.values, own.values.new_zeros(1)])
        own = unit.like(values[place])
    if contribute == "clean":
        return own
    unit_T = rng.ragged_uniform(own.lengths).values
    uniform_T = (unit_T * like.n_items).long()
    if contribute == "uniform":
        return own.like(uniform_T)
    if noise == "opendp":
        # By a vetted library from the device's entropy; uniform at empty positions.
        out: list[int] = []
        for item, empty in zip(own.values.cpu(), empty_C[own.owner].tolist(), strict=True):
            score_I = like.rows(item[None])[0] * (0 if empty else 1)
            out += choose(score_I.tolist(), epsilon, like.sensitivity)
        return own.like(torch.tensor(out, dtype=torch.long, device=own.values.device))
    drawn_T = perturbed(own.values, unit_T, like, epsilon)
    return own.like(torch.where(empty_C[own.owner], uniform_T, drawn_T))


def chances(items_B: Tensor, like: Likeness, epsilon: float) -> Tensor:  # Eq. 5
    """The probability that an item is replaced by each item, [B, I]."""
    return probabilities(like.rows(items_B), epsilon, like.sensitivity)


def perturbed(items_T: Tensor, unit_T: Tensor, like: Likeness, epsilon: float) -> Tensor:
    """Replaces each item by a draw of the exponential mechanism, from uniform numbers in [0, 1)."""
    count_I = torch.bincount(items_T, minlength=like.n_items)
    # Items with similar counts together, so that there is little padding.
    sorted_I = count_I.argsort(descending=True, stable=True)
    order_T = sorted_I.argsort()[items_T].argsort(stable=True)
    offsets = offsets_of(count_I[sorted_I])
    out_T = torch.empty_like(items_T)
    for at in range(0, int((count_I > 0).sum()), ROWS):
        items_B = sorted_I[at : at + ROWS]
        here = order_T[offsets[at] : offsets[at + len(items_B)]]
        unit = Ragged(unit_T[here], offsets[at : at + len(items_B) + 1] - offsets[at])
        unit_BK = unit.padded()
        cdf_BI = chances(items_B, like, epsilon).cumsum(1)
        drawn_BK = torch.searchsorted(cdf_BI, unit_BK, right=True).clamp_(max=like.n_items - 1)
        out_T[here] = drawn_BK[unit.mask(unit_BK.shape[1])]
    return out_T


def kept_share(contribute: Contribute, like: Likeness, epsilon: float) -> float:
    """The probability that a position keeps its item, on average over at most `SAMPLE` items."""
    if contribute == "clean":
        return 1.0
    if contribute == "uniform":
        return 1 / like.n_items
    some = torch.linspace(0, like.n_items - 1, min(SAMPLE, like.n_items)).long()
    parts = [chances(b, like, epsilon).gather(1, b[:, None]) for b in some.split(ROWS)]
    return float(torch.cat(parts).mean())


def as_sets(lists: Ragged, n_items: int) -> Ragged:
    """The lists sorted and distinct, with only items that exist, whatever a client has sent."""
    valid = (lists.values >= 0) & (lists.values < n_items)
    key = (lists.owner[valid] * n_items + lists.values[valid]).unique()
    return Ragged.of_keys(key, n_items, len(lists))
