"""What a dataset is like, and what in it would flatter or blur a result.

Shape suffix: E = interactions.
"""

from dataclasses import dataclass

import numpy as np

from .dataset import TEST, TRAIN, VALID, Array, Dataset


@dataclass(frozen=True)
class Facts:
    """Counts of one dataset."""

    users: int
    items: int
    rows: int
    distinct: int  # (user, item) pairs
    shortest: int  # rows of a user
    median: float
    longest: int
    tied_rows: int  # that share their time with another row of the same user
    tied_users: int  # whose last row is not known, because the last time is shared
    time: str  # "clock", "order" or "none"
    titles: bool
    parts: tuple[int, ...] = ()  # rows of train, valid and test, where the data has its own split
    leaks: int = 0  # (user, item) pairs that are in two of them
    untrained: int = 0  # users with something held out and nothing to train on

    @property
    def duplicates(self) -> int:
        return self.rows - self.distinct

    @property
    def density(self) -> float:
        return self.distinct / (self.users * self.items)


def facts(dataset: Dataset) -> Facts:
    n_N = np.bincount(dataset.user_E, minlength=dataset.n_users)
    tied_rows, tied_users = _ties(dataset)
    return Facts(
        dataset.n_users,
        dataset.n_items,
        len(dataset),
        len(np.unique(_pair_E(dataset))),
        int(n_N.min()),
        float(np.median(n_N)),
        int(n_N.max()),
        tied_rows,
        tied_users,
        "none" if dataset.time_E is None else "clock" if dataset.clock else "order",
        bool(dataset.titles),
        *_own_split(dataset),
    )


def _own_split(dataset: Dataset) -> tuple[tuple[int, ...], int, int]:
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
    """Rows at a time that the user has twice; users for whom that is the last time."""
    if dataset.time_E is None:
        return 0, 0
    order_E = np.lexsort((dataset.time_E, dataset.user_E))
    user_E, time_E = dataset.user_E[order_E], dataset.time_E[order_E]
    next_E = (user_E[1:] == user_E[:-1]) & (time_E[1:] == time_E[:-1])
    tied_E = np.r_[next_E, False] | np.r_[False, next_E]
    last_E = np.r_[user_E[1:] != user_E[:-1], True]
    return int(tied_E.sum()), int((tied_E & last_E).sum())


def warnings(found: Facts) -> list[str]:
    """What a reader of results should know, one line each."""
    return [
        line
        for holds, line in (
            (
                found.duplicates > 0,
                f"{found.duplicates:,} rows repeat a (user, item) pair: with split.rows = 'given' the same pair can be"
                " in train and test; the default keeps one row of each",
            ),
            (
                found.leaks > 0,
                f"{found.leaks:,} (user, item) pairs are in two parts of the split that came with the data: by default"
                " what trains is not tested; with split.rows = 'given' they leak",
            ),
            (
                found.untrained > 0,
                f"{found.untrained:,} users have something held out and nothing to train on",
            ),
            (
                len(found.parts) > 0 and not found.parts[TEST],
                "the split that came with the data has no test part",
            ),
            (
                found.tied_users > 0,
                f"{found.tied_users:,} users ({found.tied_users / found.users:.0%}) have a tie at the end of their"
                " history: which item is their last one is decided by file order",
            ),
            (
                found.time == "none",
                "no times: the order of the file counts as the order of each history",
            ),
            (
                found.median < 3,
                f"half of the users have at most {found.median:g} rows: users with fewer than 3 are never tested",
            ),
        )
        if holds
    ]
