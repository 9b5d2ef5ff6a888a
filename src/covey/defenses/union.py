"""UNION's filter: leaves out clients whose uploads make the items more alike.

Yu et al., "Untargeted Attack against Federated Recommendation Systems and the Defense", AAAI 2023.
An attack that makes items alike leaves a table that is less uniform. The server tries every upload
alone, measures how far apart the items then are, and leaves out the smaller of two groups of
clients if there are two. Shape suffixes: S = sampled items, B = reference draws or a block.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import Rows, Upload, positive
from covey.mechanism import Mechanism, ServerView

from .rows import check_minority

CLIENTS_AT_ONCE = 4


@dataclass(frozen=True)
class Union(Mechanism):
    """Leaves out the smaller group of clients if there are two, or if it is within `malicious`."""

    malicious: float = 0.0  # known share of attackers
    items: int = 500  # sampled without replacement
    draws: int = 50  # of the gap statistic
    rate: float = 1.0  # multiplies the update that is tried
    table: str = "items"
    name: str = "union"

    def __post_init__(self) -> None:
        check_minority(self.name, self.malicious)
        positive(self.name, items=self.items, draws=self.draws)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        value = upload.update.get(self.table)
        if not isinstance(value, Rows) or len(upload) < 3:
            return upload
        rng = view.server_rng.to(value.values.device)
        pick_S = rng.fold("items").permutation(value.height)[0, : self.items].sort().values
        far_C = self._far(view, pick_S, _among(value, pick_S))
        low, high = far_C.min(), far_C.max()
        if not high > low:
            return upload
        chance_BC = rng.fold("gap").uniform(self.draws, len(far_C))[0]
        small_C, two = self._groups((far_C - low) / (high - low), chance_BC)
        if two or int(small_C.sum()) <= math.ceil(len(upload) * self.malicious - 1e-9):
            return upload.take((~small_C).nonzero()[:, 0])
        return upload

    def _far(self, view: ServerView, pick_S: Tensor, rows: Rows) -> Tensor:
        """Mean distance of the sampled items after the server's step with one upload alone, [C]."""
        now_SD, at_T = view.public[self.table][pick_S], rows.items.values
        if view.preview_step is None:
            return uniformity(now_SD, rows, self.rate)
        base_SD = view.preview_step(self.table, pick_S, torch.zeros_like(now_SD)).double()
        new_TD = view.preview_step(self.table, pick_S[at_T], self.rate * rows.values).double()
        return uniformity(base_SD, replace(rows, values=new_TD - base_SD[at_T]), 1.0)

    def _groups(self, x_C: Tensor, chance_BC: Tensor) -> tuple[Tensor, bool]:
        """The smaller of two groups, [C] bool, and whether the gap statistic finds two or one."""
        one, two, upper_C = spreads(x_C[None])
        chance_one, chance_two, _ = spreads(chance_BC)
        small_C = upper_C[0] if int(upper_C.sum()) * 2 <= len(x_C) else ~upper_C[0]
        gap_one = _log(chance_one).mean() - _log(one)[0]
        gap_two = _log(chance_two).mean() - _log(two)[0]
        doubt = _log(chance_two).std(correction=0) * math.sqrt(1 + 1 / self.draws)
        return small_C, bool(gap_one < gap_two - doubt)


def spreads(x_BC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Splits numbers into the best two groups: in one dimension a lower and an upper part.

    Returns the sums of squares around one centre, [B], and around the best two, [B], and who is in
    the upper group, [B, C] bool.
    """
    x_BC = x_BC.double()
    s_BC, C = x_BC.sort(1).values, x_BC.shape[1]
    sum_BC, square_BC = s_BC.cumsum(1), s_BC.square().cumsum(1)
    k_C = torch.arange(1, C + 1, device=x_BC.device)
    low_BC = square_BC - sum_BC.square() / k_C
    high_BC = (sum_BC[:, -1:] - sum_BC).square() / (C - k_C).clamp(min=1)
    rest_BC = square_BC[:, -1:] - square_BC - high_BC
    two_B, at_B = (low_BC + rest_BC)[:, :-1].min(1)
    return low_BC[:, -1], two_B, x_BC > s_BC.gather(1, at_B[:, None])


def uniformity(base_SD: Tensor, rows: Rows, rate: float) -> Tensor:
    """Mean distance between sampled items after adding `rate` times one client's rows, [C]."""
    S, base_SD = len(base_SD), base_SD.double()
    out_C = base_SD.new_zeros(len(rows))
    apart_SS = distances(base_SD, base_SD)
    # Uploads of similar size are computed together, so that there is little padding.
    for some_B in rows.items.lengths.argsort(stable=True).split(CLIENTS_AT_ONCE):
        part = rows.take(some_B)
        width = max(int(part.items.lengths.max()), 1)
        at_BR, real_BR = part.items.padded(width), part.items.mask(width)
        pair_BRR = real_BR[:, :, None] & real_BR[:, None]
        was_BRD = base_SD[at_BR]
        new_BRD = was_BRD + rate * part.items.like(part.values.double()).padded(width)
        apart_BRR = apart_SS[at_BR[:, :, None], at_BR[:, None]]
        old_B = 2 * (apart_SS.sum(1)[at_BR] * real_BR).sum(1) - _total(apart_BRR, pair_BRR)
        to_B = (distances(new_BRD.flatten(0, 1), base_SD).sum(1).view_as(at_BR) * real_BR).sum(1)
        outer_B = 2 * (to_B - _total(distances(new_BRD, was_BRD), pair_BRR))
        now_B = outer_B + _total(distances(new_BRD, new_BRD), pair_BRR)
        out_C[some_B] = (apart_SS.sum() - old_B + now_B) / (S * (S - 1))
    return out_C


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Distances between rows [..., A, D] and [..., B, D] by inner products, [..., A, B]."""
    squares = a.square().sum(-1)[..., None] + b.square().sum(-1)[..., None, :]
    return (squares - 2 * (a @ b.mT)).clamp_(min=0).sqrt_()


def _log(x: Tensor) -> Tensor:
    return x.clamp(min=1e-12).log()


def _total(far_BRR: Tensor, pair_BRR: Tensor) -> Tensor:
    return (far_BRR * pair_BRR).sum((1, 2))


def _among(value: Rows, pick_S: Tensor) -> Rows:
    """The rows of the sampled items, which are renumbered by their place in the sample."""
    place_I = torch.full((value.height,), -1, device=pick_S.device)
    place_I[pick_S] = torch.arange(len(pick_S), device=pick_S.device)
    sampled = value.kept(place_I[value.items.values] >= 0)
    return Rows(sampled.items.like(place_I[sampled.items.values]), sampled.values, len(pick_S))
