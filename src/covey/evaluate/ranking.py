"""Exact ranks of held-out items among all items or sampled candidates; ties count against them.

Shape suffixes: C = clients of a chunk, I = items, in S strips of B (block b has one item of each
strip) and a remainder R, K = the best scores in use, L = candidates of a client (the held-out item
first), T = held-out items of all clients together, H = hidden items, W = the most held-out items
that one client has near the top.
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
    """What ranks need of a score matrix, so that the scores of a chunk can be freed."""

    best_CK: Tensor  # the K largest scores of candidates, ascending
    count_C: Tensor  # how many candidates score at least best_CK[:, 0]: more than K with ties
    held_T: Tensor  # the scores of the relevant items

    @staticmethod
    def cat(chunks: Sequence["Top"]) -> "Top":
        return Top(*map(torch.cat, zip(*((t.best_CK, t.count_C, t.held_T) for t in chunks))))

    @staticmethod
    def joined(ranges: Sequence["Top"], held: Sequence[Tensor]) -> "Top":
        """Joins ranges of the catalogue; `held` are the relevant items in each, bool [T]."""
        if len(ranges) == 1:
            return ranges[0]
        K = ranges[0].best_CK.shape[1]
        best_CK = _sorted(torch.cat([r.best_CK for r in ranges], 1))[:, -K:].contiguous()
        least_C1, held_T = best_CK[:, :1], best_CK.new_empty(len(held[0]))
        count_C = torch.zeros_like(ranges[0].count_C)
        for one, mine_T in zip(ranges, held, strict=True):
            # The least of one range is at most that of all.
            above_C = (one.best_CK >= least_C1).sum(1)
            count_C += torch.where(one.best_CK[:, 0] == least_C1[:, 0], one.count_C, above_C)
            held_T[mine_T] = one.held_T
        return Top(best_CK, count_C, held_T)


def ranks_full(score_CI: Tensor, relevant: Ragged, hidden: Ragged, depth: int) -> Ragged:
    """Ranks every relevant item of each client among all items that are not hidden.

    An irrelevant item with an equal score ranks before a relevant one; relevant items with equal
    scores take successive ranks. An item scored NaN or -inf is never recommended.

    Args:
        score_CI: The scores of all items, which are the same afterwards.
        relevant: The relevant items of each client, distinct; candidates even if they are hidden.
        hidden: The items of each client that are no candidates.
        depth: The largest rank that matters.

    Returns:
        The ranks of `relevant`, from 1; depth + 1 for all larger ranks.
    """
    return ranks_of(top_of(score_CI, relevant, hidden, depth), relevant)


def top_of(
    score_CI: Tensor, relevant: Ragged, hidden: Ragged, depth: int, overwrite: bool = False
) -> Top:
    """The part of `ranks_full` that reads the whole score matrix, and may `overwrite` it."""
    return Scores(score_CI).top(relevant, hidden, depth, overwrite)


@dataclass
class Scores:
    """A score matrix whose best entries are found once, or again while more items are hidden.

    Hidden scores are overwritten and, but after the `last` call, restored: cheaper than a copy. The
    maxima of blocks are used again: each further hidden item can make one of them invalid.
    """

    score_CI: Tensor
    most_CB: Tensor | None = None  # the maxima of blocks, from the first call of `top`
    hidden_C: Tensor | None = None  # how many items were hidden then

    @torch.no_grad()
    def top(self, relevant: Ragged, hidden: Ragged, depth: int, last: bool = False) -> Top:
        """Finds the best candidates; `hidden` are at least those of earlier calls."""
        shown_CI = self.score_CI.to(_exact(self.score_CI.dtype)).contiguous()
        restore = not last and shown_CI.data_ptr() == self.score_CI.data_ptr()
        flat = shown_CI.view(-1)
        relevant_T, hidden_H = (_flat(items, shown_CI.shape[1]) for items in (relevant, hidden))
        held_T, before_H = flat[relevant_T], flat[hidden_H] if restore else flat[:0]
        flat.index_fill_(0, hidden_H, -torch.inf)
        flat.index_copy_(0, relevant_T, held_T)
        best_CK, count_C = self._best(shown_CI, relevant, held_T, hidden.lengths, depth + 1)
        if restore:
            flat.index_copy_(0, hidden_H, before_H)
        return Top(best_CK, count_C, _without_nan(held_T))

    def _best(
        self, shown_CI: Tensor, relevant: Ragged, held_T: Tensor, hidden_C: Tensor, places: int
    ) -> tuple[Tensor, Tensor]:
        """`Top.best_CK` and `Top.count_C`; `places` is one more than `depth`, to detect ties."""
        more = 0 if self.hidden_C is None else int((hidden_C - self.hidden_C).max())
        if self.most_CB is None or more > places:
            self.most_CB, self.hidden_C, more = _maxima(shown_CI, places), hidden_C, 0
        elif len(held_T):  # relevant items may have been hidden in the first call
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
    """The part of `ranks_full` that ranks the relevant items among the best scores."""
    owner_T, K = relevant.owner, top.best_CK.shape[1]
    is_near_T = (top.held_T >= top.best_CK[:, 1][owner_T]) & (top.held_T > -torch.inf)
    near_T = is_near_T.nonzero()[:, 0]
    rank_T = torch.full_like(relevant.values, K)
    if len(near_T):
        lengths = torch.bincount(owner_T[near_T], minlength=len(relevant))
        near = Ragged(top.held_T[near_T], offsets_of(lengths))
        rank_T[near_T] = _ranks_near(near, top).clamp(max=K)
    return relevant.like(rank_T)


@torch.no_grad()
def ranks_sampled(score_CL: Tensor) -> Tensor:
    """The rank of the item in column 0: 1 + the number of others that score at least as much, [C].

    NaN counts as -inf, so a held-out item scored NaN comes last.
    """
    score_CL = _without_nan(score_CL.to(_exact(score_CL.dtype)))
    return 1 + (score_CL[:, 1:] >= score_CL[:, :1]).sum(1)


def distinct(lists: Ragged) -> Ragged:
    """The lists sorted, with every value once."""
    width = int(lists.values.max()) + 1 if len(lists.values) else 1
    key_T = lists.owner * width + lists.values
    if bool((key_T.diff() > 0).all()):
        return lists
    return Ragged.of_keys(torch.unique(key_T), width, len(lists))


def merged(one: Ragged, two: Ragged) -> Ragged:
    """Both lists of every client in one list, first that of `one`."""
    if not len(two.values):
        return one
    values = one.values.new_empty(len(one.values) + len(two.values))
    for part, before_C in ((one, two.offsets[:-1]), (two, one.offsets[1:])):
        place_T = torch.arange(len(part.values), device=values.device)
        index_T = before_C.repeat_interleave(part.lengths) + place_T
        values.index_copy_(0, index_T, part.values)
    return Ragged(values, one.offsets + two.offsets)


def span(lists: Ragged, start: int, stop: int) -> Ragged:
    """The lists of clients start to stop - 1, without the copy that `Ragged.take` makes."""
    offsets = lists.offsets[start : stop + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return Ragged(lists.values[first:last], offsets - first)


def item_range(lists: Ragged, first: int, last: int, n_items: int) -> tuple[Ragged, Tensor]:
    """The items from `first` to `last` - 1 as numbers from 0, and which of all they are, [T]."""
    mine_T = (lists.values >= first) & (lists.values < last)
    if last - first == n_items:
        return lists, mine_T
    offsets = F.pad(mine_T.cumsum(0), (1, 0))[lists.offsets]
    return Ragged(lists.values[mine_T] - first, offsets), mine_T


def nothing(clients: int, device: torch.device | str = "cpu") -> Ragged:
    offsets = torch.zeros(clients + 1, dtype=torch.int64, device=device)
    return Ragged(offsets[:0], offsets)


def keep_heap() -> None:
    """Makes the C library keep freed memory for the next chunk, instead of requesting zeroed pages.

    glibc decides by the largest block that was freed, up to 32 MB, how much it keeps. This block is
    never written, so it costs nothing. One call serves the process; other libraries ignore it.
    """
    torch.empty(30 << 20, dtype=torch.uint8)


def _without_nan(score: Tensor) -> Tensor:
    return torch.nan_to_num(score, nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def _exact(dtype: torch.dtype) -> torch.dtype:
    """A type that represents all values of `dtype` and that every operation here supports."""
    single = dtype in (torch.float16, torch.bfloat16, torch.float32)
    return torch.float32 if single else torch.float64


def _flat(items: Ragged, width: int) -> Tensor:
    """The places of the items of all clients in a matrix of the given width, row after row."""
    start_C = torch.arange(len(items), device=items.values.device) * width
    return start_C.repeat_interleave(items.lengths).add_(items.values)


@cache
def _blocks(I: int, places: int) -> int:
    """The number of blocks B with the fewest values to sort: maxima, the best blocks, the rest."""
    return min(range(places, I // 4), key=lambda B: B + I // B * places + I % B)


def _maxima(shown_CI: Tensor, places: int) -> Tensor | None:
    """The maximum of each block; None if blocks would save nothing."""
    I = shown_CI.shape[1]
    return None if 8 * places > I else _strips(shown_CI, _blocks(I, places)).amax(1)


def _strips(shown_CI: Tensor, B: int) -> Tensor:
    """The blocks, [C, S, B], without the remainder."""
    S = shown_CI.shape[1] // B
    return shown_CI[:, : S * B].unflatten(1, (S, B))


def _raise(most_CB: Tensor, items: Ragged, value_T: Tensor, I: int) -> None:
    B = most_CB.shape[1]
    inside_T = items.values < I // B * B
    place_T = (items.owner * B + items.values % B)[inside_T]
    most_CB.view(-1).scatter_reduce_(0, place_T, value_T[inside_T], "amax")


def _best(shown_CI: Tensor, places: int, most_CB: Tensor | None, more: int = 0) -> Tensor:
    """Finds the `places` largest values of each row, in ascending order; NaN is the largest.

    They are all in the remainder and the blocks with the largest maxima, of which there are enough.
    Up to `more` maxima of a row may belong to items that were hidden since.
    """
    C, I = shown_CI.shape
    if most_CB is None:
        padded_CI = F.pad(shown_CI, (max(0, places - I), 0), value=-torch.inf)
        return _sorted(padded_CI)[:, -places:].contiguous()
    B, wide = most_CB.shape[1], min(places + more, most_CB.shape[1])
    strips_CSB, rest_CR = _strips(shown_CI, B), shown_CI[:, I // B * B :]
    value_CSK = strips_CSB.gather(2, _best_blocks(most_CB, wide)[:, None].expand(C, I // B, wide))
    return _sorted(torch.cat([value_CSK.flatten(1), rest_CR], 1))[:, -places:].contiguous()


def _best_blocks(most_CB: Tensor, places: int) -> Tensor:
    """The columns of the `places` largest values of each row, in any order, [C, places]."""
    if most_CB.device.type == "cpu":  # there, sorting values is far faster than finding columns
        found = (most_CB < _sorted(most_CB)[:, -places, None]).logical_not_().nonzero()[:, 1]
        if len(found) == len(most_CB) * places:
            return found.view(len(most_CB), places)
    return most_CB.topk(places, sorted=False).indices


def _sorted(value_CV: Tensor) -> Tensor:
    """Sorts rows in ascending order; on a CPU with numpy, whose sort is vectorised."""
    if value_CV.device.type == "cpu":
        return torch.from_numpy(np.sort(value_CV.numpy(), axis=1))
    return value_CV.sort(1).values


def _ranks_near(near: Ragged, top: Top) -> Tensor:
    """The ranks of relevant scores that are at least the second of the best (ascending), [T]."""
    s_CW, order_CW = near.padded(fill=-torch.inf).sort(1)
    W, K = s_CW.shape[1], top.best_CK.shape[1]
    all_CW = K - torch.searchsorted(top.best_CK, s_CW)  # candidates that score as much or more
    all_CW = torch.where(s_CW == top.best_CK[:, :1], top.count_C[:, None], all_CW)
    own_CW = W - torch.searchsorted(s_CW, s_CW)  # of which relevant
    place_W = torch.arange(W, 0, -1, device=s_CW.device)
    rank_CW = torch.empty_like(order_CW).scatter_(1, order_CW, all_CW - own_CW + place_W)
    return rank_CW[near.owner, near.place]
