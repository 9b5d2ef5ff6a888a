"""Ranks of held-out items, exact and with ties against them: in the full catalogue, or among sampled candidates.

Shape suffixes: C = clients of a chunk, I = items, in S strips of B (block b has one item of each strip) and a
rest R, K = the best scores looked at, L = candidates of a client (the held-out one first), T = held-out
items of all clients together, H = hidden ones, W = the most of them that one client has near the top.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core.ragged import Ragged, offsets_of


@dataclass(frozen=True)
class Top:
    """What ranks need of the scores: small, so that a chunk's scores can be dropped before the next chunk."""

    best_CK: Tensor  # the K largest scores of candidates, ascending
    count_C: Tensor  # how many candidates score at least best_CK[:, 0]: more than K if some are equal to it
    held_T: Tensor  # scores of the relevant items

    @staticmethod
    def cat(chunks: Sequence["Top"]) -> "Top":
        """The chunks as one."""
        return Top(
            *(torch.cat(x) for x in zip(*((t.best_CK, t.count_C, t.held_T) for t in chunks)))
        )

    @staticmethod
    def joined(shelves: Sequence["Top"], held: Sequence[Tensor]) -> "Top":
        """Of the same clients by parts of the catalogue; `held` says which relevant items each has, bool [T]."""
        if len(shelves) == 1:
            return shelves[0]
        K = shelves[0].best_CK.shape[1]
        best_CK = _sorted(torch.cat([s.best_CK for s in shelves], 1))[:, -K:].contiguous()
        least_C1, held_T = best_CK[:, :1], best_CK.new_empty(len(held[0]))
        count_C = torch.zeros_like(shelves[0].count_C)
        for shelf, mine_T in zip(
            shelves, held, strict=True
        ):  # no shelf's least of K is above that of them all
            above_C = (shelf.best_CK >= least_C1).sum(1)
            count_C += torch.where(shelf.best_CK[:, 0] == least_C1[:, 0], shelf.count_C, above_C)
            held_T[mine_T] = shelf.held_T
        return Top(best_CK, count_C, held_T)


def ranks_full(score_CI: Tensor, relevant: Ragged, hidden: Ragged, depth: int) -> Ragged:
    """1-based rank of every relevant item of each client among all its items that are not hidden.

    The result is aligned with `relevant`, whose items are distinct within a client. Ranks beyond
    `depth` are returned as depth + 1. An irrelevant item with an equal score ranks before a relevant
    one; relevant items with equal scores take successive ranks. An item scored NaN or -inf is never
    recommended: as a relevant item it gets depth + 1. A relevant item stays a candidate even if it is
    hidden too. `score_CI` is afterwards as it was.
    """
    return ranks_of(top_of(score_CI, relevant, hidden, depth), relevant)


def top_of(
    score_CI: Tensor, relevant: Ragged, hidden: Ragged, depth: int, spoil: bool = False
) -> Top:
    """The first half of `ranks_full`, all that reads the whole score matrix; it may `spoil` it."""
    return Scores(score_CI).top(relevant, hidden, depth, spoil)


@dataclass
class Scores:
    """A score matrix that is looked at once, or several times with ever more items hidden.

    Hidden scores are covered where they stand, far cheaper than in a copy of all, and then put back. The maxima of
    blocks under fewer hidden items serve again: each one more can take a client's place among the best blocks away.
    """

    score_CI: Tensor
    most_CB: Tensor | None = None  # of the first look
    hidden_C: Tensor | None = None  # how many items it hid

    @torch.no_grad()
    def top(self, relevant: Ragged, hidden: Ragged, depth: int, last: bool = False) -> Top:
        """What is `relevant` is a candidate even if it is hidden too; the `last` look need not put back."""
        shown_CI = self.score_CI.to(_exact(self.score_CI.dtype)).contiguous()
        lent = not last and shown_CI.data_ptr() == self.score_CI.data_ptr()
        flat, (relevant_T, hidden_H) = (
            shown_CI.view(-1),
            (_flat(x, shown_CI.shape[1]) for x in (relevant, hidden)),
        )
        held_T, before_H = flat[relevant_T], flat[hidden_H] if lent else flat[:0]
        flat.index_fill_(0, hidden_H, -torch.inf)
        flat.index_copy_(0, relevant_T, held_T)
        best_CK, count_C = self._best(shown_CI, relevant, held_T, hidden.lengths, depth + 1)
        if lent:
            flat.index_copy_(0, hidden_H, before_H)
        return Top(best_CK, count_C, _without_nan(held_T))

    def _best(
        self, shown_CI: Tensor, relevant: Ragged, held_T: Tensor, hidden_C: Tensor, places: int
    ) -> tuple[Tensor, Tensor]:
        """`Top.best_CK` and `Top.count_C`; one place more than asked for, to know of ties at the last."""
        more = 0 if self.hidden_C is None else int((hidden_C - self.hidden_C).max())
        if self.most_CB is None or more > places:
            self.most_CB, self.hidden_C, more = _maxima(shown_CI, places), hidden_C, 0
        elif len(held_T):  # they may have been hidden before
            _raise(self.most_CB, relevant, held_T, shown_CI.shape[1])
        best_CK = _best(shown_CI, places, self.most_CB, more)
        if bool(best_CK[:, -1].isnan().any()):
            shown_CI, self.most_CB = _without_nan(shown_CI), None
            best_CK = _best(shown_CI, places, _maxima(shown_CI, places))
        count_C = torch.full_like(best_CK[:, 0], places, dtype=torch.int64)
        tied_C = (best_CK[:, 0] == best_CK[:, 1]) & (best_CK[:, 0] > -torch.inf)
        if bool(tied_C.any()):
            count_C[tied_C] = (shown_CI[tied_C] >= best_CK[tied_C, :1]).sum(1)
        return best_CK, count_C


@torch.no_grad()
def ranks_of(top: Top, relevant: Ragged) -> Ragged:
    """The second half of `ranks_full`: relevant items placed among the best scores."""
    owner_T, K = relevant.owner, top.best_CK.shape[1]
    near_T = ((top.held_T >= top.best_CK[:, 1][owner_T]) & (top.held_T > -torch.inf)).nonzero()[
        :, 0
    ]
    rank_T = torch.full_like(relevant.values, K)
    if len(near_T):
        near = Ragged(
            top.held_T[near_T], offsets_of(torch.bincount(owner_T[near_T], minlength=len(relevant)))
        )
        rank_T[near_T] = _ranks_near(near, top).clamp(max=K)
    return relevant.like(rank_T)


@torch.no_grad()
def ranks_sampled(score_CL: Tensor) -> Tensor:
    """Rank of the item in column 0 among the candidates, [C]: 1 + how many others score at least as much.

    NaN counts as -inf, so a held-out item scored NaN comes last.
    """
    score_CL = _without_nan(score_CL.to(_exact(score_CL.dtype)))
    return 1 + (score_CL[:, 1:] >= score_CL[:, :1]).sum(1)


def distinct(lists: Ragged) -> Ragged:
    """The same lists, sorted and with every value once."""
    width = int(lists.values.max()) + 1 if len(lists.values) else 1
    key_T = lists.owner * width + lists.values
    if bool((key_T.diff() > 0).all()):
        return lists  # as it is already
    key_T = torch.unique(key_T)
    owner_T = key_T.div(width, rounding_mode="floor")
    return Ragged(
        key_T - owner_T * width, offsets_of(torch.bincount(owner_T, minlength=len(lists)))
    )


def merged(one: Ragged, two: Ragged) -> Ragged:
    """Both lists of every client in one, that of `one` first."""
    if not len(two.values):
        return one
    values = one.values.new_empty(len(one.values) + len(two.values))
    _lay(values, one, two.offsets[:-1])
    _lay(values, two, one.offsets[1:])
    return Ragged(values, one.offsets + two.offsets)


def _lay(values: Tensor, part: Ragged, before_C: Tensor) -> None:
    """Write the part's values, each behind the given number of values that are not the part's."""
    index_T = before_C.repeat_interleave(part.lengths) + torch.arange(
        len(part.values), device=values.device
    )
    values.index_copy_(0, index_T, part.values)


def span(lists: Ragged, start: int, stop: int) -> Ragged:
    """Clients start to stop - 1; without the copy that `Ragged.take` makes."""
    offsets = lists.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return Ragged(lists.values[first:last], offsets - first)


def on_shelf(lists: Ragged, first: int, last: int, n_items: int) -> tuple[Ragged, Tensor]:
    """The items from first to last - 1, counted from the first, and which ones they are, bool [T]."""
    mine_T = (lists.values >= first) & (lists.values < last)
    if last - first == n_items:
        return lists, mine_T
    offsets = F.pad(mine_T.cumsum(0), (1, 0))[lists.offsets]
    return Ragged(lists.values[mine_T] - first, offsets), mine_T


def nothing(clients: int, device: torch.device | str = "cpu") -> Ragged:
    """An empty list for each client."""
    offsets = torch.zeros(clients + 1, dtype=torch.int64, device=device)
    return Ragged(offsets[:0], offsets)


def keep_heap() -> None:
    """Have the C library keep freed memory for the next chunk, instead of fetching zeroed pages for each.

    glibc learns from the largest block it has freed, up to 32 MB, how much to keep; this block is never
    touched, so it costs nothing. Elsewhere it does nothing. One call serves the whole process.
    """
    torch.empty(30 << 20, dtype=torch.uint8)


def _without_nan(score: Tensor) -> Tensor:
    return torch.nan_to_num(score, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _exact(dtype: torch.dtype) -> torch.dtype:
    """A type that holds all scores of the given one and that every operation here takes."""
    return (
        torch.float32 if dtype in (torch.float16, torch.bfloat16, torch.float32) else torch.float64
    )


def _flat(items: Ragged, width: int) -> Tensor:
    """Where the items of all clients are in a matrix of the given width, row after row."""
    start_C = torch.arange(len(items), device=items.values.device) * width
    return start_C.repeat_interleave(items.lengths).add_(items.values)


@cache
def _blocks(I: int, places: int) -> int:
    """The number of blocks B with the fewest values to look at: B maxima, then the best blocks and the rest."""
    return min(range(places, I // 4), key=lambda B: B + I // B * places + I % B)


def _maxima(shown_CI: Tensor, places: int) -> Tensor | None:
    """Of each block; none where there is nothing to gain from blocks."""
    I = shown_CI.shape[1]
    return None if 8 * places > I else _strips(shown_CI, _blocks(I, places)).amax(1)


def _strips(shown_CI: Tensor, B: int) -> Tensor:
    """[C, S, B] without the rest"""
    S = shown_CI.shape[1] // B
    return shown_CI[:, : S * B].unflatten(1, (S, B))


def _raise(most_CB: Tensor, items: Ragged, value_T: Tensor, I: int) -> None:
    """Maxima under some items more."""
    B = most_CB.shape[1]
    owner_T, item_T, value_T = (
        x[items.values < I // B * B] for x in (items.owner, items.values, value_T)
    )
    most_CB.view(-1).scatter_reduce_(0, owner_T * B + item_T % B, value_T, "amax")


def _best(shown_CI: Tensor, places: int, most_CB: Tensor | None, more: int = 0) -> Tensor:
    """The `places` largest values of each row, in ascending order; NaN is the largest.

    They are all in the rest and the blocks with the largest maxima: for any other block, these maxima are
    as large as its values and as many as asked for. Up to `more` maxima of a row may be of items hidden since.
    """
    C, I = shown_CI.shape
    if most_CB is None:
        return _sorted(F.pad(shown_CI, (max(0, places - I), 0), value=-torch.inf))[
            :, -places:
        ].contiguous()
    B, wide = most_CB.shape[1], min(places + more, most_CB.shape[1])
    strips_CSB, rest_CR = _strips(shown_CI, B), shown_CI[:, I // B * B :]
    value_CSK = strips_CSB.gather(2, _best_blocks(most_CB, wide)[:, None].expand(C, I // B, wide))
    return _sorted(torch.cat([value_CSK.flatten(1), rest_CR], 1))[:, -places:].contiguous()


def _best_blocks(most_CB: Tensor, places: int) -> Tensor:
    """Where the `places` largest values of each row are, in any order, [C, places]."""
    if (
        most_CB.device.type == "cpu"
    ):  # sorting values alone is far quicker there, and tells the rest if none are equal
        found = (most_CB < _sorted(most_CB)[:, -places, None]).logical_not_().nonzero()[:, 1]
        if len(found) == len(most_CB) * places:
            return found.view(len(most_CB), places)
    return most_CB.topk(places, sorted=False).indices


def _sorted(value_CV: Tensor) -> Tensor:
    """Rows in ascending order; on a CPU by numpy, whose sort is vectorised."""
    if value_CV.device.type == "cpu":
        return torch.from_numpy(np.sort(value_CV.numpy(), axis=1))
    return value_CV.sort(1).values


def _ranks_near(near: Ragged, top: Top) -> Tensor:
    """Ranks of relevant scores that are not below the second of the best (ascending), [T]."""
    s_CW, order_CW = near.padded(fill=-torch.inf).sort(1)
    W, K = s_CW.shape[1], top.best_CK.shape[1]
    all_CW = K - torch.searchsorted(top.best_CK, s_CW)  # candidates that score as much or more
    all_CW = torch.where(s_CW == top.best_CK[:, :1], top.count_C[:, None], all_CW)
    own_CW = W - torch.searchsorted(s_CW, s_CW)  # of which relevant
    place_W = torch.arange(W, 0, -1, device=s_CW.device)
    rank_CW = torch.empty_like(order_CW).scatter_(1, order_CW, all_CW - own_CW + place_W)
    return rank_CW[near.owner, near.place]
