"""Datasets: interactions as plain arrays, their file format, and splits that come with the data.

Shape suffix: E = interactions, in the order of the file they came from.
"""

import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from covey.core.errors import CoveyError

Array = npt.NDArray[Any]
NO_TIME = float("nan")

FORMAT = 1
ARRAYS = ("user_E", "item_E", "time_E", "users", "items", "part_E")
TRAIN, VALID, TEST = 0, 1, 2
PARTS = {"train": TRAIN, "valid": VALID, "test": TEST}
PART_NAMES = PARTS | {"training": TRAIN} | dict.fromkeys(("validation", "val", "dev"), VALID)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Interactions with dense ids from 0; the ids of the original data are in `users`, `items`."""

    name: str
    n_users: int
    n_items: int
    user_E: Array  # int32 or int64
    item_E: Array
    time_E: Array | None = None  # float64: a timestamp, or the position in the user's history
    users: Array | None = None  # ids of the original data; None: str(index)
    items: Array | None = None
    titles: tuple[str, ...] = ()
    clock: bool = False  # time_E can be compared across users
    part_E: Array | None = None  # uint8, TRAIN, VALID or TEST: a split that came with the data

    def __len__(self) -> int:
        return len(self.user_E)

    def __repr__(self) -> str:
        sizes = f"{self.n_users:,} users, {self.n_items:,} items, {len(self):,} interactions"
        return f"<Dataset {self.name!r:.40}: {sizes}>"

    @cached_property
    def flaw(self) -> str | None:
        """What is wrong with the columns; computed once, since a dataset never changes."""
        checks = (*_wrong_shape(self), *_wrong_values(self))
        return next((why for wrong, why in checks if wrong), None)

    def save(self, path: str | Path) -> None:
        """Writes a .npz file without pickles; a reader never sees half a file."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = {k: getattr(self, k) for k in ("name", "n_users", "n_items", "clock")}
        arrays = {k: getattr(self, k) for k in ARRAYS if getattr(self, k) is not None}
        # Titles are saved as text, because an array of strings would pad each one to the longest.
        texts = {"meta": _text({"format": FORMAT} | meta), "titles": _text(self.titles)}
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays, **texts)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | Path) -> "Dataset":
        """Reads and checks a file that `save` wrote."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                meta: dict[str, Any] = json.loads(file["meta"].tobytes())
                if (found := meta.pop("format")) != FORMAT:
                    raise ValueError(f"format {found}, expected {FORMAT}")
                meta["titles"] = tuple(json.loads(file["titles"].tobytes()))
                return check(Dataset(**meta | {k: file[k] for k in ARRAYS if k in file}))
        except FileNotFoundError:
            remedy = "a prepared dataset is written by Dataset.save"
            raise CoveyError(f"no file {path}; {remedy}") from None
        except (OSError, EOFError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
            why = f"{path} is not a prepared dataset of this version ({error}); prepare it again"
            raise CoveyError(why) from None


def _text(value: object) -> Array:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def check(dataset: Dataset) -> Dataset:
    """Returns the dataset, or raises an error that says in one line what is wrong with it."""
    if dataset.flaw is not None:
        raise CoveyError(f"dataset '{dataset.name}' {dataset.flaw}")
    return dataset


def _wrong_shape(d: Dataset) -> list[tuple[bool, str]]:
    columns = (d.user_E, d.item_E, d.time_E, d.part_E)
    lengths = {len(column) for column in columns if column is not None}
    too_few = "is a filter too strict?"
    own = ("users", d.users), ("items", d.items), ("titles", d.titles or None)
    named = ((k, v, d.n_users if k == "users" else d.n_items) for k, v in own)
    return [
        (len(lengths) > 1, f"has columns of unequal lengths {sorted(lengths)}"),
        (not len(d), "has no interactions; is its file empty, or a filter too strict?"),
        (d.n_users < 2, f"has {d.n_users} user; federated training needs at least 2, {too_few}"),
        (d.n_items < 2, f"has {d.n_items} item; ranking needs at least 2, {too_few}"),
        *((v is not None and len(v) != n, f"needs {n} {k}, one for each id") for k, v, n in named),
    ]


def _wrong_values(d: Dataset) -> list[tuple[bool, str]]:
    untimed = d.time_E is not None and not np.isfinite(d.time_E).all()
    unknown_part = d.part_E is not None and _outside(d.part_E, 3)
    return [
        (_outside(d.user_E, d.n_users), f"has user ids outside 0..{d.n_users - 1}"),
        (_outside(d.item_E, d.n_items), f"has item ids outside 0..{d.n_items - 1}"),
        (untimed, "has missing or infinite times; fix those rows or leave the time column out"),
        (d.clock and d.time_E is None, "has a clock but no times"),
        (unknown_part, "has a split of more than train, valid and test"),
    ]


def _outside(id_E: Array, count: int) -> bool:
    if id_E.dtype.kind not in "iu":
        return True
    return len(id_E) > 0 and (int(id_E.min()) < 0 or int(id_E.max()) >= count)


def with_titles(dataset: Dataset, titles: Iterable[tuple[str, str]]) -> Dataset:
    """Adds titles, given as (item, title); the title of an item without one is its id."""
    known = {item: title for item, title in titles if title}
    assert dataset.items is not None
    all_titles = tuple(known.get(str(item)) or str(item) for item in dataset.items.tolist())
    return replace(dataset, titles=all_titles)


def numbering() -> defaultdict[Any, int]:
    """A dict that numbers its keys by first appearance."""
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    return ids


def renumber(id_E: Array) -> tuple[Array, Array]:
    """Dense ids by first appearance, and the old id of each."""
    old, first, dense_E = np.unique(id_E, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(old), np.int32)
    rank[order] = np.arange(len(old))
    return rank[dense_E], old[order]


def select(dataset: Dataset, keep_E: Array) -> Dataset:
    """The rows of a mask, with ids by first appearance."""
    user_E, user = renumber(dataset.user_E[keep_E])
    item_E, item = renumber(dataset.item_E[keep_E])
    columns = {k: v[keep_E] for k in ("time_E", "part_E") if (v := getattr(dataset, k)) is not None}
    columns |= {"user_E": user_E, "item_E": item_E, "n_users": len(user), "n_items": len(item)}
    columns |= {"users": own_ids(dataset, "users")[user], "items": own_ids(dataset)[item]}
    titles = tuple(dataset.titles[i] for i in item) if dataset.titles else ()
    return replace(dataset, **columns, titles=titles)


def part_of(value: Any) -> int:
    name = str(value).strip().lower()
    if name not in PART_NAMES:
        raise ValueError(f"{str(value)!r} is no part of a split; write train, valid or test")
    return PART_NAMES[name]


def together(parts: Mapping[str, Dataset]) -> Dataset:
    """Joins parts into one dataset with its split; times are kept if all have them, not titles."""
    every = list(parts.values())
    user_E, users = _joined([(own_ids(d, "users"), d.user_E) for d in every])
    item_E, items = _joined([(own_ids(d), d.item_E) for d in every])
    times = [d.time_E for d in every if d.time_E is not None]
    timed = len(times) == len(every)
    part_E = np.concatenate([np.full(len(d), PARTS[k], np.uint8) for k, d in parts.items()])
    clock, time_E = timed and all(d.clock for d in every), np.concatenate(times) if timed else None
    made = Dataset(every[0].name, len(users), len(items), user_E, item_E, time_E, users, items)
    return check(replace(made, clock=clock, part_E=part_E))


def own_ids(dataset: Dataset, kind: Literal["users", "items"] = "items") -> Array:
    """The original id of every item or user; its number as text if the dataset has no ids."""
    ids: Array | None = getattr(dataset, kind)
    return np.arange(getattr(dataset, f"n_{kind}")).astype(np.str_) if ids is None else ids


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Common numbers for the rows of all parts by first appearance, and the id of each number."""
    number = numbering()
    own = [np.array([number[name] for name in ids.tolist()], np.int32)[id_E] for ids, id_E in parts]
    dense_E, old = renumber(np.concatenate(own))
    return dense_E, np.array(list(number))[old]
