"""A split that comes with the data: a column that says train, valid or test, or a file for each part.

Shape suffix: E = interactions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .dataset import TEST, TRAIN, VALID, Dataset, check, renumber

PARTS = {"train": TRAIN, "valid": VALID, "test": TEST}
NAMES = {
    "train": TRAIN,
    "training": TRAIN,
    "valid": VALID,
    "validation": VALID,
    "val": VALID,
    "dev": VALID,
    "test": TEST,
}


def part_of(value: Any) -> int:
    """Which part a cell names."""
    name = str(value).strip().lower()
    if name not in NAMES:
        raise ValueError(f"{str(value)!r} is no part of a split; write train, valid or test")
    return NAMES[name]


def together(parts: Mapping[str, Dataset]) -> Dataset:
    """The rows of "train", "valid" and "test" as one dataset that knows its split, without titles.

    Times are kept where all parts have them.
    """
    every = list(parts.values())
    user_E, users = renumber(np.concatenate([_own(d.users, d.n_users)[d.user_E] for d in every]))
    item_E, items = renumber(np.concatenate([_own(d.items, d.n_items)[d.item_E] for d in every]))
    times = [d.time_E for d in every if d.time_E is not None]
    timed = len(times) == len(every)
    return check(
        Dataset(
            every[0].name,
            len(users),
            len(items),
            user_E,
            item_E,
            np.concatenate(times) if timed else None,
            users,
            items,
            clock=timed and all(d.clock for d in every),
            part_E=np.concatenate(
                [np.full(len(d), PARTS[name], np.uint8) for name, d in parts.items()]
            ),
        )
    )


def _own(ids: Any, count: int) -> Any:
    return np.arange(count).astype(np.str_) if ids is None else ids
