"""UNION's filter (Yu et al., Untargeted Attack against Federated Recommendation Systems and the Defense, AAAI 2023).

An attack that makes items alike leaves a table that is less uniform. The server tries every upload alone,
measures how far apart items then are, and leaves out the smaller of two groups of clients if there are two.
Further shape suffixes: S = sampled items, B = reference draws.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanism
from covey.contract.views import ServerView
from covey.core.checks import positive
from covey.core.messages import Upload
from covey.core.ragged import Ragged, Rows, offsets_of

from .rows import minority

CLIENTS_AT_ONCE = 4


@dataclass(frozen=True)
class Union(Mechanism):
    """`malicious` is the share of attackers that the server knows of: a smaller group of so few is left out anyway."""

    malicious: float = 0.0
    items: int = 500  # sampled, each at most once
    draws: int = 50  # of the gap statistic
    rate: float = 1.0  # of the update that is tried
    table: str = "items"
    name: str = "union"

    def __post_init__(self) -> None:
        minority(self.name, self.malicious)
        positive(self.name, items=self.items, draws=self.draws)

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        value = upload.update.get(self.table)
        if not isinstance(value, Rows) or len(upload) < 3:
            return upload
        dice = view.server_rng.to(value.values.device)
        pick_S = dice.fold("items").permutation(value.height)[0, : self.items].sort().values
        far_C = self._far(view, pick_S, _among(value, pick_S))
        low, high = far_C.min(), far_C.max()
        if not high > low:
            return upload
        small_C, two = self._groups(
            (far_C - low) / (high - low), dice.fold("gap").uniform(self.draws, len(far_C))[0]
        )
        if two or int(small_C.sum()) <= math.ceil(len(upload) * self.malicious - 1e-9):
            return upload.take((~small_C).nonzero()[:, 0])
        return upload

    def _far(self, view: ServerView, pick_S: Tensor, rows: Rows) -> Tensor:
        """How far apart the sampled items are after the server's step with each client's upload alone, [C].

        Where the server keeps moments, rows that a client did not touch move too, for everybody alike.
        """
        now_SD, at_T = view.public[self.table][pick_S], rows.items.values
        if view.preview_step is None:
            return uniformity(now_SD, rows, self.rate)
        base_SD = view.preview_step(self.table, pick_S, torch.zeros_like(now_SD)).double()
        new_TD = view.preview_step(self.table, pick_S[at_T], self.rate * rows.values).double()
        return uniformity(base_SD, replace(rows, values=new_TD - base_SD[at_T]), 1.0)

    def _groups(self, x_C: Tensor, chance_BC: Tensor) -> tuple[Tensor, bool]:
        """The smaller group, [C] bool, and whether there are two groups rather than one (gap statistic)."""
        one, two, upper_C = spreads(x_C[None])
        chance_one, chance_two, _ = spreads(chance_BC)
        small_C = upper_C[0] if int(upper_C.sum()) * 2 <= len(x_C) else ~upper_C[0]
        log = lambda x: x.clamp(min=1e-12).log()
        gap_one = log(chance_one).mean() - log(one)[0]
        gap_two = log(chance_two).mean() - log(two)[0]
        doubt = log(chance_two).std(correction=0) * math.sqrt(1 + 1 / self.draws)
        return small_C, bool(gap_one < gap_two - doubt)


def spreads(x_BC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of squares around one centre and around the best two, [B] each, and who is in the upper group, [B, C].

    In one dimension the best two groups are the lower and the upper part of the sorted values.
    """
    x_BC = x_BC.double()
    s_BC, C = x_BC.sort(1).values, x_BC.shape[1]
    some_BC, square_BC = s_BC.cumsum(1), s_BC.square().cumsum(1)
    k_C = torch.arange(1, C + 1, device=x_BC.device)
    low_BC = square_BC - some_BC.square() / k_C
    rest_BC = (
        square_BC[:, -1:]
        - square_BC
        - (some_BC[:, -1:] - some_BC).square() / (C - k_C).clamp(min=1)
    )
    two_B, at_B = (low_BC + rest_BC)[:, :-1].min(1)
    return low_BC[:, -1], two_B, x_BC > s_BC.gather(1, at_B[:, None])


def uniformity(base_SD: Tensor, rows: Rows, rate: float) -> Tensor:
    """Mean distance between sampled items if only client c's rows were added, [C]; only touched rows are looked at."""
    S, base_SD, out_C = (
        len(base_SD),
        base_SD.double(),
        base_SD.new_zeros(len(rows), dtype=torch.float64),
    )
    apart_SS = distances(base_SD, base_SD)
    order = rows.items.lengths.argsort(
        stable=True
    )  # like sizes together, so that little is padding
    for some_B in order.split(CLIENTS_AT_ONCE):
        part = rows.take(some_B)
        width = max(int(part.items.lengths.max()), 1)
        at_BR, real_BR = part.items.padded(width), part.items.mask(width)
        was_BRD = base_SD[at_BR]
        new_BRD = was_BRD + rate * part.items.like(part.values.double()).padded(width)
        pair_BRR = real_BR[:, :, None] & real_BR[:, None]
        within = lambda far_BRR, pair_BRR=pair_BRR: (far_BRR * pair_BRR).sum((1, 2))
        old_B = 2 * (apart_SS.sum(1)[at_BR] * real_BR).sum(1) - within(
            apart_SS[at_BR[:, :, None], at_BR[:, None]]
        )
        to_B = (distances(new_BRD.flatten(0, 1), base_SD).sum(1).view_as(at_BR) * real_BR).sum(1)
        now_B = 2 * (to_B - within(distances(new_BRD, was_BRD))) + within(
            distances(new_BRD, new_BRD)
        )
        out_C[some_B] = (apart_SS.sum() - old_B + now_B) / (S * (S - 1))
    return out_C


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Between rows [..., A, D] and [..., B, D], from inner products in double precision, [..., A, B]."""
    square = lambda x: x.square().sum(-1)
    return (square(a)[..., None] + square(b)[..., None, :] - 2 * (a @ b.mT)).clamp_(min=0).sqrt_()


def _among(value: Rows, pick_S: Tensor) -> Rows:
    """The rows of sampled items, numbered by their place in the sample."""
    place_I = torch.full((value.height,), -1, device=pick_S.device)
    place_I[pick_S] = torch.arange(len(pick_S), device=pick_S.device)
    at_T = place_I[value.items.values]
    lengths = torch.zeros_like(value.items.lengths).index_add_(
        0, value.items.owner, (at_T >= 0).long()
    )
    return Rows(Ragged(at_T[at_T >= 0], offsets_of(lengths)), value.values[at_T >= 0], len(pick_S))
