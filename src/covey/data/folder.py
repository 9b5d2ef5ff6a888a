"""Reads datasets from csv files: <root>/<name>/interactions.csv.gz, and items.csv.gz with titles.

Columns: user, item, timestamp (a clock) or order (the position in that user's history), and split
(train, valid, test) if the data have their own. Other columns are ignored; every row is one
interaction.
"""

import csv
import difflib
import gzip
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

import numpy as np

from covey.core.errors import CoveyError

from .dataset import NO_TIME, Array, Dataset, Row, check, collect, select, with_titles
from .supplied_split import part_of

Reader = Iterator[list[str]]


@dataclass(frozen=True)
class Filter:
    """What is dropped: the first line, rare items, users with few rows, and outside of a core."""

    min_user: int = 0  # rows that a user needs
    min_item: int = 0  # rows that an item needs
    drop_first_line: bool = False
    core: int = 0  # rows that every user and every item needs in the end


# The filters of the papers. In their files, the first line of FilmTrust was taken for a header.
DEFAULT_FILTERS: dict[str, Filter] = {
    "filmtrust": Filter(min_user=5, drop_first_line=True),
    "lastfm-2k": Filter(min_user=5),
}


def available(root: str | Path) -> list[str]:
    """Names of the datasets under root."""
    files = [path for path in Path(root).glob("*/interactions.csv*") if path.is_file()]
    return sorted({path.parent.name for path in files if path.name.endswith((".csv", ".csv.gz"))})


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


def unknown(name: str, names: list[str], root: str | Path | None) -> str:
    """The message for an unknown name: the nearest name, the available ones, and the remedy."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    where = f" in {root}" if root else ""
    there = f"available{where}: {', '.join(names) or 'none'}"
    return f"no dataset '{name}'{hint} {there}; set COVEY_DATA=/path/to/data to look elsewhere"


def apply_filter(dataset: Dataset, filter: Filter) -> Dataset:
    """Keeps the rows that pass and renumbers ids by first appearance."""
    if filter == Filter():
        return dataset
    keep_E = np.ones(len(dataset), bool)
    keep_E[: int(filter.drop_first_line)] = False
    both = dataset.item_E, dataset.user_E
    _keep(keep_E, both, (filter.min_item, filter.min_user))
    while filter.core and _keep(keep_E, both, (filter.core, filter.core)):
        pass  # a dropped user may leave an item with too few rows, and so on
    return check(select(dataset, keep_E))


def _keep(keep_E: Array, ids: tuple[Array, Array], least: tuple[int, int]) -> bool:
    """Clears the rows of rare ids, of one kind after the other; returns whether there were any."""
    before = int(keep_E.sum())
    for id_E, count in zip(ids, least):
        keep_E &= np.bincount(id_E[keep_E], minlength=int(id_E.max(initial=0)) + 1)[id_E] >= count
    return int(keep_E.sum()) < before


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
