"""Counts of a dataset, and warnings about properties that distort results.

Shape suffixes: E = interactions, N = users.
"""

from dataclasses import dataclass

import numpy as np

from .dataset import TEST, TRAIN, VALID, Array, Dataset

GIVEN = "with split.rows = 'given'"


@dataclass(frozen=True)
class Summary:
    """Counts of one dataset."""

    users: int
    items: int
    rows: int
    distinct: int  # (user, item) pairs
    shortest: int  # rows of a user
    median: float
    longest: int
    tied_rows: int  # rows with the time of another row of the same user
    tied_users: int  # users whose last row is unknown, because several rows have the last time
    time: str  # "clock", "order" or "none"
    titles: bool
    parts: tuple[int, ...] = ()  # rows of train, valid and test, if the data have their own split
    leaks: int = 0  # (user, item) pairs that are in two of them
    untrained: int = 0  # users with held-out rows and no training rows

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct

    @property
    def density(self) -> float:
        return self.distinct / (self.users * self.items)


def summarise(dataset: Dataset) -> Summary:
    n_N = np.bincount(dataset.user_E, minlength=dataset.n_users)
    sizes = dataset.n_users, dataset.n_items, len(dataset), len(np.unique(_pair_E(dataset)))
    rows = int(n_N.min()), float(np.median(n_N)), int(n_N.max())
    time = "none" if dataset.time_E is None else "clock" if dataset.clock else "order"
    (tied_rows, tied_users), titles = _ties(dataset), bool(dataset.titles)
    return Summary(*sizes, *rows, tied_rows, tied_users, time, titles, *_own_split(dataset))


def _own_split(dataset: Dataset) -> tuple[tuple[int, ...], int, int]:
    """`Summary.parts`, `leaks` and `untrained`."""
    if dataset.part_E is None:
        return (), 0, 0
    pairs = [np.unique(_pair_E(dataset)[dataset.part_E == part]) for part in (TRAIN, VALID, TEST)]
    leaks = sum(map(len, pairs)) - len(np.unique(np.concatenate(pairs)))
    trained = np.bincount(dataset.user_E[dataset.part_E == TRAIN], minlength=dataset.n_users)
    rows = np.bincount(dataset.part_E, minlength=3)
    return tuple(rows.tolist()), leaks, int((trained == 0).sum())


def _pair_E(dataset: Dataset) -> Array:
    return dataset.user_E.astype(np.int64) * dataset.n_items + dataset.item_E


def _ties(dataset: Dataset) -> tuple[int, int]:
    if dataset.time_E is None:
        return 0, 0
    order_E = np.lexsort((dataset.time_E, dataset.user_E))
    user_E, time_E = dataset.user_E[order_E], dataset.time_E[order_E]
    next_E = (user_E[1:] == user_E[:-1]) & (time_E[1:] == time_E[:-1])
    tied_E = np.r_[next_E, False] | np.r_[False, next_E]
    last_E = np.r_[user_E[1:] != user_E[:-1], True]
    return int(tied_E.sum()), int((tied_E & last_E).sum())


def warnings(found: Summary) -> list[str]:
    """What a reader of results on this dataset should know, one line each."""
    lines = []
    if found.duplicates:
        given = f"{GIVEN} the same pair can be in train and test"
        repeated = f"{found.duplicates:,} rows repeat a (user, item) pair: {given}"
        lines += [f"{repeated}; the default keeps one row of each"]
    if found.leaks:
        both = f"{found.leaks:,} (user, item) pairs are in two parts of the split that came with"
        lines += [f"{both} the data: by default what trains is not tested; {GIVEN} they leak"]
    if found.untrained:
        lines += [f"{found.untrained:,} users have something held out and nothing to train on"]
    if found.parts and not found.parts[TEST]:
        lines += ["the split that came with the data has no test part"]
    if found.tied_users:
        users = f"{found.tied_users:,} users ({found.tied_users / found.users:.0%})"
        which = "which item is their last one is decided by file order"
        lines += [f"{users} have a tie at the end of their history: {which}"]
    if found.time == "none":
        lines += ["no times: the order of the file counts as the order of each history"]
    if found.median < 3:
        few = f"half of the users have at most {found.median:g} rows"
        lines += [f"{few}: users with fewer than 3 are never tested"]
    return lines
