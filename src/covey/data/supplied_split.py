"""Splits that come with the data: a column with train, valid or test, or one file for each part."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .dataset import TEST, TRAIN, VALID, Array, Dataset, check, numbering, renumber

PARTS = {"train": TRAIN, "valid": VALID, "test": TEST}
NAMES = PARTS | {"training": TRAIN} | dict.fromkeys(("validation", "val", "dev"), VALID)


def part_of(value: Any) -> int:
    """The part that a cell names."""
    name = str(value).strip().lower()
    if name not in NAMES:
        raise ValueError(f"{str(value)!r} is no part of a split; write train, valid or test")
    return NAMES[name]


def together(parts: Mapping[str, Dataset]) -> Dataset:
    """Joins the rows of "train", "valid" and "test" into one dataset that contains its split.

    Times are kept if all parts have them; titles are not kept.
    """
    every = list(parts.values())
    user_E, users = _joined([(_ids(d.users, d.n_users), d.user_E) for d in every])
    item_E, items = _joined([(_ids(d.items, d.n_items), d.item_E) for d in every])
    times = [d.time_E for d in every if d.time_E is not None]
    timed = len(times) == len(every)
    part_E = np.concatenate([np.full(len(d), PARTS[k], np.uint8) for k, d in parts.items()])
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
            part_E=part_E,
        )
    )


def _ids(ids: Any, count: int) -> Any:
    return np.arange(count).astype(np.str_) if ids is None else ids


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Common numbers for the rows of all parts by first appearance, and the id of each number."""
    number = numbering()
    own = [np.array([number[name] for name in ids.tolist()], np.int32)[id_E] for ids, id_E in parts]
    dense_E, old = renumber(np.concatenate(own))
    return dense_E, np.array(list(number))[old]
