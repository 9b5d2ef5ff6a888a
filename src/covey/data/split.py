"""Splits a dataset into training, validation and test, and draws candidates for ranking.

Shape suffixes: E = interactions, S = the same, sorted by user, N = users, I = items,
K = candidates.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from covey.core import CoveyError, Ragged, Rng, offsets_of
from covey.core.sampling import distinct_ranks, outside

from .dataset import TEST, TRAIN, VALID, Array, Dataset, check, select
from .settings import Pool
from .settings import SplitConfig as SplitConfig

CHUNK_ROWS = 1 << 21  # random words drawn at once
CHUNK_USERS = 1 << 13  # users whose candidates are drawn at once
ROUNDING = 1e-9  # because 0.7 * 10 is slightly less than 7


@dataclass(frozen=True)
class Split:
    """The items of each user in three parts, each in the order of time, else of the file."""

    n_users: int
    n_items: int
    train: Ragged
    valid: Ragged
    test: Ragged


def draw_users(dataset: Dataset, count: int, seed: int) -> Dataset:
    """Keeps the rows of `count` users, drawn by the seed, and the items in these rows."""
    if not 0 < count <= dataset.n_users:
        wrong = f"data.draw_users = {count}"
        raise CoveyError(f"{wrong}; dataset '{dataset.name}' has {dataset.n_users} users")
    place_N = Rng.server(seed, 0, "users").uniform(dataset.n_users)[0].argsort()
    drawn_N = np.zeros(dataset.n_users, bool)
    drawn_N[place_N[:count].numpy()] = True
    return check(select(dataset, drawn_N[dataset.user_E]))


def split(dataset: Dataset, config: SplitConfig) -> Split:
    """Assigns each row to training, validation or test."""
    rows, by_time, part_S = _assign(dataset, config)
    user_S, item_S = rows.user_E[by_time], rows.item_E[by_time]
    masks = [part_S == part for part in (TRAIN, VALID, TEST)]
    parts = (_ragged(user_S[mask_S], item_S[mask_S], rows.n_users) for mask_S in masks)
    return Split(rows.n_users, rows.n_items, *parts)


def assigned(dataset: Dataset, config: SplitConfig) -> Dataset:
    """The rows in use with their parts: splitting these as "given" makes the same split again."""
    rows, by_time, part_S = _assign(dataset, config)
    part_E = np.empty(len(rows), np.uint8)
    part_E[by_time] = part_S
    return replace(rows, part_E=part_E)


def _assign(dataset: Dataset, config: SplitConfig) -> tuple[Dataset, Array, Array]:
    """The rows in use, their order by user and time, and the part of each row in that order."""
    rows = check(dataset)
    if config.rows == "distinct":
        rows = _distinct(rows)
    by_time = _by_time(rows)
    if config.kind == "temporal":
        part_S = _temporal(rows, config)[by_time]
    elif config.kind == "given":
        if rows.part_E is None:
            remedy = "covey data import --split COLUMN, or use split.kind = 'loo' or 'ratio'"
            raise CoveyError(f"dataset '{rows.name}' has no split; import it with {remedy}")
        part_S = rows.part_E[by_time]
    elif config.order == "time":
        part_S = _per_user(rows.user_E[by_time], rows.n_users, config)
    else:
        by_order = _by_file(rows)
        if config.order == "random":
            n_N = np.bincount(rows.user_E, minlength=rows.n_users)
            by_order = by_order[_shuffled(n_N, config.seed, "split.order")]
        part_E = np.empty(len(rows), np.uint8)
        part_E[by_order] = _per_user(rows.user_E[by_order], rows.n_users, config)
        part_S = part_E[by_time]
    return rows, by_time, part_S


def _distinct(rows: Dataset) -> Dataset:
    """One row per pair, at the first place, with the latest time, in the earliest of its parts."""
    key_E = rows.user_E.astype(np.int64) * rows.n_items + rows.item_E
    ordered_E = np.sort(key_E)
    if not (ordered_E[1:] == ordered_E[:-1]).any():
        return rows
    order = np.argsort(key_E, kind="stable")
    starts = np.flatnonzero(np.r_[True, key_E[order][1:] != key_E[order][:-1]])
    time_E = np.arange(len(rows), dtype=np.float64) if rows.time_E is None else rows.time_E
    part_P = None if rows.part_E is None else np.minimum.reduceat(rows.part_E[order], starts)
    if part_P is not None and rows.part_E is not None:
        # The time of a row in a later part must not be known in training.
        stays_E = rows.part_E[order] == np.repeat(part_P, np.diff(np.r_[starts, len(order)]))
        time_E = np.where(stays_E, time_E[order], -np.inf)[np.argsort(order)]
    last_P = np.maximum.reduceat(time_E[order], starts)
    first_P = order[starts]
    by_place = np.argsort(first_P)
    kept = first_P[by_place]
    part_E = None if part_P is None else part_P[by_place]
    user_E, item_E = rows.user_E[kept], rows.item_E[kept]
    time_E = last_P[by_place]
    return replace(rows, user_E=user_E, item_E=item_E, time_E=time_E, part_E=part_E)


def _by_file(rows: Dataset) -> Array:
    return np.argsort(rows.user_E, kind="stable")


def _by_time(rows: Dataset) -> Array:
    """Rows by user, then time; of rows with equal times, the first in the file is the latest."""
    if rows.time_E is None:
        return _by_file(rows)
    # Published splits rank by falling time, then by file order; this is that ranking in reverse.
    return len(rows) - 1 - np.lexsort((rows.time_E[::-1], rows.user_E[::-1]))


def _shuffled(n_N: Array, seed: int, purpose: str) -> Array:
    """A random order of n_N.sum() places that exchanges places of the same user only."""
    order = np.empty(int(n_N.sum()), np.int64)
    ends_N = np.cumsum(n_N)
    edges = [0, *(np.flatnonzero(np.diff(ends_N // CHUNK_ROWS)) + 1).tolist(), len(ends_N)]
    for users in (slice(a, b) for a, b in pairwise(edges)):  # about CHUNK_ROWS rows each
        rng = Rng.of(seed, 0, torch.arange(users.start, users.stop)).fold(purpose)
        words = rng.ragged_bits(torch.from_numpy(n_N[users]))
        begin = int(ends_N[users.start] - n_N[users.start])
        stretch = slice(begin, begin + len(words.values))
        order[stretch] = begin + np.lexsort((words.values.numpy(), words.owner.numpy()))
    return order


def _per_user(user_S: Array, n_users: int, config: SplitConfig) -> Array:
    """The part of each row, for rows sorted by user and then by `config.order`."""
    n_N = np.bincount(user_S, minlength=n_users)
    if config.kind == "ratio":
        return _ratio(user_S, n_N, config)
    # The last row is test, the one before validation; users with fewer than 3 rows only train.
    part_S = np.full(len(user_S), TRAIN, np.uint8)
    end_N = np.cumsum(n_N)[n_N >= 3]
    part_S[end_N - 1] = TEST
    part_S[end_N - 2] = VALID
    return part_S


def _place(user_S: Array, n_N: Array) -> Array:
    return np.asarray(np.arange(len(user_S)) - (np.cumsum(n_N) - n_N)[user_S])


def _ratio(user_S: Array, n_N: Array, config: SplitConfig) -> Array:
    """The first rows (at least one) train, the rest is test; validation is drawn from the first."""
    first_N = np.floor(n_N * (1 - config.test) + ROUNDING).astype(np.int64)
    kept_N = np.minimum(n_N, np.maximum(1, first_N))
    part_S = np.where(_place(user_S, n_N) < kept_N[user_S], TRAIN, TEST).astype(np.uint8)
    kept = np.flatnonzero(part_S == TRAIN)
    part_S[kept[_validates(user_S[kept], kept_N, config)]] = VALID
    return part_S


def _validates(user_S: Array, n_N: Array, config: SplitConfig) -> Array:
    """Whether each row, sorted by user, is held out for validation; counts are drawn."""
    chance_N = Rng.of(config.seed, 0, torch.arange(len(n_N))).fold("split.round").uniform(1)
    held_N = np.floor(n_N * config.valid + chance_N[:, 0].numpy()).astype(np.int64)
    held_N = held_N.clip(max=(n_N - 1).clip(min=0))
    held_S = np.empty(len(user_S), bool)
    held_S[_shuffled(n_N, config.seed, "split.valid")] = _place(user_S, n_N) < held_N[user_S]
    return held_S


def _temporal(rows: Dataset, config: SplitConfig) -> Array:
    """Rows after one point in time are test, rows between an earlier point and it validation."""
    if rows.time_E is None or not rows.clock:
        why = f"dataset '{rows.name}' has no clock: its order is that of each user alone"
        raise CoveyError(f"{why}; use split.kind = 'loo' or 'ratio'")
    time_E = np.sort(rows.time_E)
    test_after = _point(time_E, config.test)
    valid_after = _point(time_E[: np.searchsorted(time_E, test_after, side="right")], config.valid)
    part_E = np.where(rows.time_E > valid_after, VALID, TRAIN).astype(np.uint8)
    part_E[rows.time_E > test_after] = TEST
    if not (part_E == TEST).any():
        why = f"the last {config.test:.0%} of its rows share one time; raise split.test"
        raise CoveyError(f"dataset '{rows.name}': {why}")
    return part_E


def _point(time_E: Array, share: float) -> float:
    """The time after which there are at most this share of the sorted times."""
    return float(time_E[max(1, int(len(time_E) * (1 - share) + ROUNDING)) - 1])


def _ragged(user_S: Array, item_S: Array, n_users: int) -> Ragged:
    lengths_N = torch.from_numpy(np.bincount(user_S, minlength=n_users))
    return Ragged(torch.from_numpy(item_S.astype(np.int64)), offsets_of(lengths_N))


def hold_out(split: Split, config: SplitConfig) -> Split:
    """Moves `config.valid` of each user's training items, drawn by the seed, to validation."""
    train = split.train
    held_S = torch.from_numpy(_validates(train.owner.numpy(), train.lengths.numpy(), config))
    return replace(split, train=train.keep(~held_S), valid=train.keep(held_S))


def pool(split: Split, kind: Pool) -> Ragged:
    """The items that each client avoids when it draws negatives, sorted and distinct.

    They are what it knows ("train"), or also what is held out ("all"), which leaks in training.
    """
    if kind not in get_args(Pool):
        raise CoveyError(f"negatives.pool = '{kind}': valid are {', '.join(get_args(Pool))}")
    parts = (split.train,) if kind == "train" else (split.train, split.valid, split.test)
    key_S = np.concatenate([(p.owner * split.n_items + p.values).numpy() for p in parts])
    key_S.sort()
    key_S = key_S[np.r_[True, key_S[1:] != key_S[:-1]]] if len(key_S) else key_S
    return _ragged(key_S // split.n_items, key_S % split.n_items, split.n_users)


def candidates(split: Split, count: int = 99, seed: int = 0) -> dict[str, Tensor]:
    """Draws [N, count] unseen items to rank the held-out items of "valid" and "test" against.

    They are distinct for each user over both parts.
    """
    seen = pool(split, "all")
    most = int(seen.lengths.max()) if len(seen) else 0
    if (least := split.n_items - most) < 2 * count:
        wrong = f"a user has {least} unseen items, 2 x {count} candidates need {2 * count}"
        remedy = f"evaluate.candidates = 'full' (or lower the count to {least // 2} or less)"
        raise CoveyError(f"{wrong}; rank all items: {remedy}")
    out = {k: torch.empty(split.n_users, count, dtype=torch.int64) for k in ("valid", "test")}
    for first in range(0, split.n_users, CHUNK_USERS):
        ids_C = torch.arange(first, min(first + CHUNK_USERS, split.n_users))
        # Ranks among the unseen items are drawn first, then their items are found.
        own, rng = seen.take(ids_C), Rng.of(seed, 0, ids_C).fold("candidates")
        size_C = split.n_items - own.lengths
        rank_CK = distinct_ranks(rng.fold("rank").uniform(2 * count), size_C)
        rank_CK = rank_CK.gather(1, rng.fold("order").permutation(2 * count))
        flat = Ragged(rank_CK.flatten(), torch.arange(len(own) + 1) * 2 * count)
        drawn_CK = outside(own, split.n_items, flat).view(-1, 2 * count)
        out["valid"][ids_C], out["test"][ids_C] = drawn_CK[:, :count], drawn_CK[:, count:]
    return out
