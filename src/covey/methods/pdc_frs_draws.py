"""What clients contribute to PDC-FRS: their lists, each item replaced at random by a similar one (Eq. 5).

Draws are made by item and not by interaction: the distribution of an item is computed once, however
many clients have it.

Shape suffixes: T = positions of all lists, B = items at once, K = draws for one item.
"""

from typing import Literal

import torch
from torch import Tensor

from covey.core.ragged import Ragged, offsets_of
from covey.core.rng import Rng
from covey.privacy.exponential import probabilities
from covey.privacy.library import choose

from .titles import ROWS, Likeness

Contribute = Literal["perturbed", "uniform", "clean"]
Noise = Literal["simulated", "opendp"]
SAMPLE = 2048  # items of which the share of kept ones is told


def contribution(
    own: Ragged,
    rng: Rng,
    how: Contribute,
    like: Likeness,
    epsilon: float,
    length: int,
    noise: Noise = "simulated",
) -> Ragged:
    """A list for each client, as long as its own, or `length` positions that are drawn from it.

    Who has nothing to draw from draws uniformly. No output is more than e^(epsilon / 2) likelier from any item than
    from none, so the guarantee of a position covers that too.
    """
    empty_C = own.lengths == 0
    if length:
        many_C = torch.full_like(own.lengths, length) * (~empty_C if how == "clean" else 1)
        unit = rng.fold("positions").ragged_uniform(many_C)
        place = (unit.values * own.lengths[unit.owner]).long() + own.offsets[:-1][unit.owner]
        values = torch.cat(
            [own.values, own.values.new_zeros(1)]
        )  # for those who have none, at the very end
        own = unit.like(values[place])
    if how == "clean":
        return own
    unit_T = rng.ragged_uniform(own.lengths).values
    uniform_T = (unit_T * like.n_items).long()
    if how == "uniform":
        return own.like(uniform_T)
    if noise == "opendp":
        return own.like(released(own.values, empty_C[own.owner], like, epsilon))
    drawn_T = perturbed(own.values, unit_T, like, epsilon)
    return own.like(torch.where(empty_C[own.owner], uniform_T, drawn_T))


def chances(items_B: Tensor, like: Likeness, epsilon: float) -> Tensor:  # Eq. 5
    """[B, I]: how likely each item becomes each other."""
    return probabilities(like.rows(items_B), epsilon, like.sensitivity)


def perturbed(items_T: Tensor, unit_T: Tensor, like: Likeness, epsilon: float) -> Tensor:
    """Each item replaced by a draw of the exponential mechanism, `unit` being uniform numbers in [0, 1)."""
    count_I = torch.bincount(items_T, minlength=like.n_items)
    turn_I = count_I.argsort(
        descending=True, stable=True
    )  # items of like counts together: little padding
    rank_I = torch.empty_like(turn_I).scatter_(
        0, turn_I, torch.arange(like.n_items, device=turn_I.device)
    )
    order_T = rank_I[items_T].argsort(stable=True)
    offsets = offsets_of(count_I[turn_I])
    out_T = torch.empty_like(items_T)
    for at in range(0, int((count_I > 0).sum()), ROWS):
        items_B = turn_I[at : at + ROWS]
        here = order_T[offsets[at] : offsets[at + len(items_B)]]
        unit = Ragged(unit_T[here], offsets[at : at + len(items_B) + 1] - offsets[at])
        unit_BK = unit.padded()
        cdf_BI = chances(items_B, like, epsilon).cumsum(1)
        drawn_BK = torch.searchsorted(cdf_BI, unit_BK, right=True).clamp_(max=like.n_items - 1)
        out_T[here] = drawn_BK[unit.mask(unit_BK.shape[1])]
    return out_T


def released(items_T: Tensor, empty_T: Tensor, like: Likeness, epsilon: float) -> Tensor:
    """The same by a vetted library from the device's entropy, a position at a time; uniform where nothing is there."""
    out = []
    for item, empty in zip(items_T.cpu(), empty_T.tolist(), strict=True):
        score_I = like.rows(item[None])[0] * (0 if empty else 1)
        out += choose(score_I.tolist(), epsilon, like.sensitivity)
    return torch.tensor(out, dtype=torch.long, device=items_T.device)


def kept_share(how: Contribute, like: Likeness, epsilon: float) -> float:
    """How likely a position still holds its item, on average over (at most `SAMPLE`) items."""
    if how == "clean":
        return 1.0
    if how == "uniform":
        return 1 / like.n_items
    some = torch.linspace(0, like.n_items - 1, min(SAMPLE, like.n_items)).long()
    parts = [chances(b, like, epsilon).gather(1, b[:, None]) for b in some.split(ROWS)]
    return float(torch.cat(parts).mean())


def as_sets(lists: Ragged, n_items: int) -> Ragged:
    """Sorted, distinct, and only items that exist: nothing a client sends is trusted."""
    valid = (lists.values >= 0) & (lists.values < n_items)
    key = (lists.owner[valid] * n_items + lists.values[valid]).unique()
    return Ragged(key % n_items, offsets_of(torch.bincount(key // n_items, minlength=len(lists))))
