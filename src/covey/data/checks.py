"""What a dataset is like, and what in it would flatter or blur a result.

Shape suffix: E = interactions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .dataset import Array, Dataset


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
    )


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
                found.tied_users > 0,
                f"{found.tied_users:,} users ({found.tied_users / found.users:.0%}) have a tie at the end of their"
                " history: which item is their last one is decided by file order",
            ),
            (found.time == "none", "no times: the order of the file counts as the order of each history"),
            (
                found.median < 3,
                f"half of the users have at most {found.median:g} rows: users with fewer than 3 are never tested",
            ),
        )
        if holds
    ]


def leaks(train: Dataset, test: Dataset) -> int:
    """Distinct (user, item) pairs, by own ids, that are in both."""
    return len(_own(train) & _own(test))


def _own(dataset: Dataset) -> set[tuple[str, str]]:
    user, item = _names(dataset.users), _names(dataset.items)
    return {(user(u), item(i)) for u, i in zip(dataset.user_E.tolist(), dataset.item_E.tolist())}


def _names(own: Array | None) -> Callable[[int], str]:
    return str if own is None else own.tolist().__getitem__
