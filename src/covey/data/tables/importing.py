"""Imports a user's table as a dataset: a file, a DataFrame, a sparse matrix or a list of pairs.

Ids are text and stay as they are written: 007 is not 7. Every row is an interaction, unless
`Columns` says which rows count.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from covey.core.errors import CoveyError
from covey.data.dataset import Array, Dataset, check, part_of, select, together, with_titles

from .columns import CLOCKLESS, Chosen, Columns, Distinct, Ids, clean, place, plain, rating
from .reader import Table, open_table
from .times import Times, looks_like_times

SAMPLE = 20  # rows in which columns that are not read are searched for times
USUAL = Columns()


@dataclass(frozen=True)
class Imported:
    """A dataset, and what a user should know about its import."""

    dataset: Dataset
    notes: tuple[str, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)  # "user", "item" ... -> column
    ignored: tuple[str, ...] = ()  # columns of the file that were not read

    def columns(self) -> str:
        """The columns in words, such as "customer (user), sku (item); ignored: price"."""
        read = ", ".join(f"{column} ({kind})" for kind, column in self.taken.items())
        return read + (f"; ignored: {', '.join(self.ignored)}" if self.ignored else "")


def from_file(
    path: str | Path,
    name: str,
    columns: Columns = USUAL,
    items: str | Path | None = None,
    parts: Mapping[str, Path] | None = None,
) -> Imported:
    """Imports a file with interactions under a name; `items` is a second file, with titles.

    `parts` are the files of "valid" and "test" for data with their own split; `path` then has the
    rows for training.
    """
    if parts and columns.split:
        wrong = "a split is either a column or separate files"
        raise CoveyError(f"{wrong}; leave out --split, or --valid and --test")
    path = Path(path)
    first, titles = _read_file(path, name, columns)
    dataset, notes = first.dataset, first.notes
    if parts:
        made = {"train": dataset}
        for part, file in parts.items():
            other, more = _read_file(file, name, columns)
            made[part] = other.dataset
            titles, notes = more | titles, (*notes, *other.notes)
        dataset, untimed = together(made), {d.time_E is None for d in made.values()}
        notes += ("some parts have no times: none are used",) if len(untimed) > 1 else ()
    if items is None and path.suffix == ".inter" and path.with_suffix(".item").exists():
        items = path.with_suffix(".item")
    if items is not None:
        with open_table(Path(items), None, columns.encoding) as table:
            titles |= _read_titles(table, columns, str(items))
    return _whole(replace(first, dataset=dataset, notes=tuple(dict.fromkeys(notes))), titles)


def from_frame(source: Any, name: str, columns: Columns = USUAL, items: Any = None) -> Imported:
    """Imports a table in memory under a name; ids stay whole numbers if they are.

    It is a DataFrame of polars, pandas or pyarrow, a sparse matrix with a row for each user and a
    column for each item, or a list of (user, item) or (user, item, time). `items` is a DataFrame
    or file with titles.
    """
    from .frames import of_object  # loads narwhals

    where = "the DataFrame"
    try:
        table, where = of_object(source)
        made, titles = read_table(table, name, columns, where, typed=True)
        if isinstance(items, str | Path):
            with open_table(Path(items), None, columns.encoding) as table:
                titles |= _read_titles(table, columns, str(items))
        elif items is not None:
            titles |= _read_titles(of_object(items)[0], columns, "the DataFrame of items")
    except TypeError as error:
        raise CoveyError(f"{where}: {error}; a cell has to be one number or text") from None
    except ValueError as error:
        raise CoveyError(f"{where}: {error}") from None
    return _whole(made, titles)


def _whole(made: Imported, titles: Mapping[str, str]) -> Imported:
    dataset = with_titles(made.dataset, titles.items()) if titles else made.dataset
    return replace(made, dataset=check(dataset))


def _read_file(path: Path, name: str, columns: Columns) -> tuple[Imported, dict[str, str]]:
    with open_table(path, columns.delimiter, columns.encoding, columns.names) as table:
        return read_table(table, name, columns, str(path))


def read_table(
    table: Table, name: str, columns: Columns, where: str, typed: bool = False
) -> tuple[Imported, dict[str, str]]:
    """The interactions of a table and the titles in it; `where` names the table in messages."""
    header, at = table.header, columns.places(table.header, where)
    readers = _readers(at, columns, typed)
    chosen = Chosen(header, columns, where)
    titles: dict[Any, str] = {}
    sample: dict[int, list[Any]] = {}
    left = [k for k, column in enumerate(header) if column and k not in at.values()]
    for chunk in chosen.of(table.chunks):
        for kind, reader in readers.items():
            reader.add(chunk(at[kind]))
        if "title" in at:
            for item, title in dict.fromkeys(zip(chunk(at["item"]), chunk(at["title"]))):
                titles[item] = titles.get(item) or _title(title)
        sample = sample or {k: chunk(k)[:SAMPLE] for k in left}
    time = header[at["time"]] if "time" in at else ""
    dataset, notes = _dataset(name, readers, columns, plain(time) not in CLOCKLESS)
    notes = chosen.notes() * (not columns.python) + notes
    if columns.min_rating is None and "rating" in at:
        notes += _unread_ratings(readers["rating"].finish(), header[at.pop("rating")], columns)
    taken = {kind: header[k] for kind, k in at.items()}
    left = [k for k, column in enumerate(header) if column and k not in at.values()]
    if columns.time is None and plain(time) in ("", *CLOCKLESS):
        notes += _missed_times(header, sample)
    ignored = tuple(header[k] for k in left)
    return Imported(dataset, notes, taken, ignored), {clean(k): v for k, v in titles.items()}


def _readers(at: Mapping[str, int], columns: Columns, typed: bool) -> dict[str, Any]:
    made: dict[str, Any] = {kind: Ids(kind, typed) for kind in ("user", "item")}
    if "time" in at:
        how = columns.option("time", "''"), columns.option("time_format", "FORMAT")
        made["time"] = Times(at["time"], columns.time_format, *how)
    if "order" in at:
        made["order"] = Times(at["order"])
    if "rating" in at:
        wanted = columns.min_rating is not None
        made["rating"] = Distinct(at["rating"], partial(rating, wanted=wanted))
    if "split" in at:
        made["split"] = Distinct(at["split"], part_of, "u1")
    return made


def _dataset(
    name: str, readers: Mapping[str, Any], columns: Columns, clock: bool
) -> tuple[Dataset, tuple[str, ...]]:
    user_E, users = readers["user"].finish()
    item_E, items = readers["item"].finish()
    missing = {"user": user_E < 0, "item": item_E < 0}
    time_E, notes = readers["time"].finish() if "time" in readers else (None, ())
    if time_E is not None and len(time_E):
        missing["time"] = np.isnan(time_E)
        if missing["time"].all():
            time_E, _ = None, missing.pop("time")
            notes = ("no row has a time: the order of the file counts",)
    if time_E is not None and "order" in readers:
        place_E, _ = readers["order"].finish()
        time_E = time_E + place_E / (place_E.max() + 1)
    keep_E, done = np.ones(len(user_E), bool), []
    if columns.min_rating is not None:
        rating_E = readers["rating"].finish()
        missing["rating"], keep_E = np.isnan(rating_E), rating_E >= columns.min_rating
        rated = f"{keep_E.sum():,} of {len(keep_E):,} rows are kept"
        done = [f"{rated}: their rating is {columns.min_rating:g} or more"]
    if gaps := _gaps(missing, columns):
        keep_E &= ~np.logical_or.reduce(list(missing.values()))
        done += [f"{gaps}: they are left out"]
    part_E = readers["split"].finish() if "split" in readers else None
    sizes, timed = (len(users), len(items)), time_E is not None
    made = Dataset(name, *sizes, user_E, item_E, time_E, users, items, (), clock and timed, part_E)
    notes += () if columns.python else tuple(done)  # in Python a note warns
    return made if keep_E.all() else select(made, keep_E), notes


def _gaps(missing: Mapping[str, Array], columns: Columns) -> str:
    """How many rows lack something, in words; refuses them unless they are to be left out."""
    counts = {kind: int(mask_E.sum()) for kind, mask_E in missing.items()}
    gaps = " and ".join(f"{count:,} without {kind}" for kind, count in counts.items() if count)
    found = f"of {len(missing['user']):,} rows there are {gaps}"
    if gaps and not columns.drop_incomplete:
        command = "" if columns.python else "covey data import "
        remedy = f"{command}{columns.option('drop_incomplete')} leaves such rows out"
        times = f", {columns.option('time', repr(''))} reads no times"
        raise ValueError(f"{found}; {remedy}{times if counts.get('time') else ''}")
    return found if gaps else ""


def _unread_ratings(rating_E: Array, column: str, columns: Columns) -> tuple[str, ...]:
    """Tells that ratings are not used, if they differ and `min_rating` is not given."""
    found_E = rating_E[np.isfinite(rating_E)]
    if not len(found_E) or found_E.min() == found_E.max():
        return ()
    why = f"every row counts, whatever its {column} ({found_E.min():g} to {found_E.max():g})"
    return (f"{why}; {columns.option('min_rating', 'N')} keeps those of N or more",)


def _missed_times(header: list[str], sample: Mapping[int, list[Any]]) -> tuple[str, ...]:
    for at, cells in sample.items():
        if looks_like_times(name := header[at], cells):
            how = f"say --time {shlex.quote(name)}, or time={name!r} in Python, to use it"
            return (f"the column '{name}' looks like times and was ignored; {how}",)
    return ()


def _read_titles(table: Table, columns: Columns, where: str) -> dict[str, str]:
    header = table.header
    i = columns.needed(header, "item", columns.item if columns.item in header else None, where)
    n = place(header, "title", columns.title if columns.title in header else None, where)
    if n is None and "name" in header:  # in a table of users it could be the name of a person
        n = header.index("name")
    if n is None:
        there = f"it has: {', '.join(header)}; say {columns.option('title', 'COLUMN')}"
        raise CoveyError(f"{where} has no column for the title; {there}")
    pairs = (pair for chunk in table.chunks for pair in zip(chunk(i), chunk(n)))
    return {clean(item): _title(title) for item, title in pairs}


def _title(value: Any) -> str:
    """The title in one line; empty for a missing value."""
    return "" if value is None or value != value else " ".join(str(value).split())
