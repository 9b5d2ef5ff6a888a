"""Loads datasets by name; reads <root>/<name>/interactions.csv.gz, and items.csv.gz with titles.

Columns: user, item, timestamp (a clock) or order (the position in that user's history), and split
(train, valid, test) if the data have their own. Other columns are ignored; every row is one
interaction.
"""

import csv
import gzip
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np

from covey.core.errors import CoveyError

from . import places
from .dataset import NO_TIME, Array, Dataset, Row, check, collect, renumber, with_titles
from .places import available as available
from .places import unknown as unknown
from .settings import DEFAULT_FILTERS as DEFAULT_FILTERS
from .settings import Filter as Filter
from .supplied_split import part_of
from .synthetic import Synthetic, generate

Reader = Iterator[list[str]]


def load(
    name: str | Path,
    root: str | Path | None = None,
    filter: Filter | None = None,
    options: Synthetic | None = None,
) -> Dataset:
    """Loads a dataset.

    Args:
        name: "synthetic", a prepared .npz file, or the name of a folder under `root` or of a
            dataset in the cache.
        root: The folder of datasets; $COVEY_DATA by default.
        filter: The rows to drop. By default it is the one that the papers use for this dataset
            (`DEFAULT_FILTERS`); `Filter()` keeps every row.
        options: Options of the synthetic dataset.
    """
    place = places.find(str(name), root)
    if place is None:
        return apply_filter(generate(options or Synthetic()), filter or Filter())
    if str(name).endswith(".npz"):
        return apply_filter(Dataset.load(place), filter or Filter())
    known = place.is_dir()
    dataset = read(place.name, place.parent) if known else Dataset.load(place)
    return apply_filter(dataset, filter or DEFAULT_FILTERS.get(dataset.name, Filter()))


def read(name: str, root: str | Path) -> Dataset:
    """Reads a dataset without filtering it."""
    if name not in (names := available(root)):
        raise CoveyError(unknown(name, names, root))
    path = _table(Path(root) / name / "interactions")
    assert path is not None
    dataset = _read_interactions(name, path)
    if items := _table(Path(root) / name / "items"):
        dataset = with_titles(dataset, _read_titles(items).items())
    return check(dataset)


def apply_filter(dataset: Dataset, filter: Filter) -> Dataset:
    """Keeps the rows that pass and renumbers ids by first appearance."""
    if filter == Filter():
        return dataset
    keep_E = np.ones(len(dataset), bool)
    keep_E[: int(filter.drop_first_line)] = False
    for id_E, least in ((dataset.item_E, filter.min_item), (dataset.user_E, filter.min_user)):
        keep_E &= np.bincount(id_E[keep_E], minlength=int(id_E.max(initial=0)) + 1)[id_E] >= least
    return check(_select(dataset, keep_E))


def _select(dataset: Dataset, keep_E: Array) -> Dataset:
    user_E, user = renumber(dataset.user_E[keep_E])
    item_E, item = renumber(dataset.item_E[keep_E])
    return replace(
        dataset,
        n_users=len(user),
        n_items=len(item),
        user_E=user_E,
        item_E=item_E,
        time_E=None if dataset.time_E is None else dataset.time_E[keep_E],
        part_E=None if dataset.part_E is None else dataset.part_E[keep_E],
        users=user.astype(np.str_) if dataset.users is None else dataset.users[user],
        items=item.astype(np.str_) if dataset.items is None else dataset.items[item],
        titles=tuple(dataset.titles[i] for i in item) if dataset.titles else (),
    )


def _read_interactions(name: str, path: Path) -> Dataset:
    order, parts = array("d"), array("B")
    with _rows(path) as (header, rows):
        u, i = _column(header, "user", path), _column(header, "item", path)
        times = [header.index(k) for k in ("timestamp", "order") if k in header]
        split = header.index("split") if "split" in header else None

        def interactions() -> Iterator[Row]:
            for row in rows:
                yield row[u], row[i], float(row[times[0]]) if times else NO_TIME
                if len(times) == 2:
                    order.append(float(row[times[1]]))
                if split is not None:
                    parts.append(part_of(row[split]))

        dataset = collect(name, interactions(), clock="timestamp" in header)
    for ids in (dataset.users, dataset.items):
        if ids is not None and "" in ids:
            raise CoveyError(f"{path} has rows without a user or an item; fix or remove them")
    if order and dataset.time_E is not None:
        # The order counts as a fraction of a second, so that equal times are in that order.
        place_E = np.frombuffer(order)
        dataset = replace(dataset, time_E=dataset.time_E + place_E / (place_E.max() + 1))
    return replace(dataset, part_E=np.array(parts, np.uint8)) if parts else dataset


def _read_titles(path: Path) -> dict[str, str]:
    with _rows(path) as (header, rows):
        item, title = _column(header, "item", path), _column(header, "title", path)
        return {row[item]: row[title] for row in rows}


@contextmanager
def _rows(path: Path) -> Iterator[tuple[list[str], Reader]]:
    """The header and the rows that are not blank; errors in the block name file and line."""
    line = 0
    try:
        opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            try:
                yield header, filter(None, reader)
            finally:
                line = reader.line_num
    except (IndexError, ValueError, csv.Error) as error:
        why = "fewer columns than the header" if isinstance(error, IndexError) else str(error)
        raise CoveyError(f"{path}, line {line}: {why}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CoveyError(f"cannot read {path}: {error}") from None


def _column(header: list[str], name: str, path: Path) -> int:
    if name not in header:
        names = ",".join(header) or "empty"
        raise CoveyError(f"{path} has no column '{name}'; its header is: {names}")
    return header.index(name)


def _table(stem: Path) -> Path | None:
    paths = [stem.with_name(stem.name + end) for end in (".csv.gz", ".csv")]
    return next((path for path in paths if path.is_file()), None)
