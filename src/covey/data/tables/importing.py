"""Imports a user's table as a dataset: CSV and similar text, RecBole's .inter, Parquet, DataFrames.

Ids are text and stay as they are written: 007 is not 7. Every row is an interaction.
"""

import math
import re
import shlex
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from covey.core.errors import CoveyError
from covey.data.dataset import NO_TIME, Dataset, Row, check, collect, with_titles
from covey.data.supplied_split import part_of, together

from .reader import Table, of_frame, open_table
from .times import Times, looks_like_times

SAMPLE = 20  # rows in which columns that are not read are searched for times
CLOCKLESS = ("order", "position", "rank")  # names of positions in a user's history
ALIASES = {
    "user": "user userid uid username reviewerid customer customerid client clientid member"
    " memberid visitor visitorid account accountid person personid reader readerid viewer viewerid",
    "item": "item itemid iid product productid movie movieid film filmid asin parentasin sku"
    " article articleid artist artistid business businessid book bookid isbn song songid track"
    " trackid game gameid content contentid",
    "time": "timestamp time date datetime ts unixreviewtime unixtime reviewdate createdat"
    " order position rank",
    "title": "title itemtitle itemname movietitle producttitle productname booktitle artistname",
}


@dataclass(frozen=True)
class Columns:
    """Which columns to read, and how. A column that is None is found by its usual names.

    Unless rows without a time are dropped, one such row means that no times are used.
    """

    user: str | None = None
    item: str | None = None
    time: str | None = None  # empty: no times are read
    title: str | None = None
    split: str | None = None  # which part a row belongs to: train, valid or test
    names: tuple[str, ...] = ()  # of all columns, for a file without a header
    delimiter: str | None = None  # None: found from the first lines
    encoding: str = "utf-8-sig"
    drop_untimed: bool = False
    python: bool = False  # messages name arguments of Python, not options of the command line

    def option(self, kind: str, value: str) -> str:
        """How the caller names a column, for messages."""
        return f"{kind}={value!r}" if self.python else f"--{kind} {value or repr(value)}"


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


USUAL = Columns()


def from_file(
    path: str | Path,
    name: str,
    columns: Columns = USUAL,
    items: str | Path | None = None,
    parts: Mapping[str, Path] | None = None,
) -> Imported:
    """Imports a file.

    Args:
        path: The file with the interactions; with `parts`, those for training.
        name: The name of the dataset.
        columns: Which columns to read, and how.
        items: A second file with titles.
        parts: The files of "valid" and "test", for data with their own split.
    """
    if parts and columns.split:
        raise CoveyError(
            "a split is either a column or separate files; leave out --split, or --valid and --test"
        )
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
    return _whole(replace(first, dataset=dataset, notes=notes), titles)


def from_frame(frame: Any, name: str, columns: Columns = USUAL, items: Any = None) -> Imported:
    """Imports a DataFrame with interactions; `items` is a second one with titles."""
    try:
        made, titles = _read(of_frame(frame), name, columns, "the DataFrame")
        if items is not None:
            titles |= _read_titles(of_frame(items), columns, "the DataFrame of items")
    except (ValueError, TypeError) as error:
        raise CoveyError(f"the DataFrame: {error}") from None
    return _whole(made, titles)


def _whole(made: Imported, titles: Mapping[str, str]) -> Imported:
    """The checked dataset with its titles."""
    dataset = with_titles(made.dataset, titles.items()) if titles else made.dataset
    return replace(made, dataset=check(dataset))


def _read_file(path: Path, name: str, columns: Columns) -> tuple[Imported, dict[str, str]]:
    with open_table(path, columns.delimiter, columns.encoding, columns.names) as table:
        return _read(table, name, columns, str(path))


def _read(table: Table, name: str, columns: Columns, where: str) -> tuple[Imported, dict[str, str]]:
    """The interactions of a table and the titles in it; `where` names the table in messages."""
    header, rows = table
    u = _needed(header, "user", columns.user, where, columns)
    i = _needed(header, "item", columns.item, where, columns)
    t = _place(header, "time", columns.time, where)
    n = _place(header, "title", columns.title, where)
    users, items, times = _Ids("user"), _Ids("item"), Times(columns.option("time", ""))
    titles: dict[str, str] = {}
    sample: list[list[Any]] = []
    s, parts = _place(header, "split", columns.split, where) if columns.split else None, array("B")

    def pick() -> Iterator[Row]:
        for row in rows:
            if len(sample) < SAMPLE:
                sample.append(row)
            user, item = users.read(row[u]), items.read(row[i])
            time = NO_TIME if t is None else times.read(row[t])
            if columns.drop_untimed and t is not None and math.isnan(time):
                continue
            if n is not None and not titles.get(item):
                titles[item] = _title(row[n])
            if s is not None:
                parts.append(part_of(row[s]))
            yield user, item, time

    dataset = collect(name, pick(), clock=t is not None and _plain(header[t]) not in CLOCKLESS)
    if times.missing and not columns.drop_untimed:
        # Without the times of some rows, the order of the others would be wrong, too.
        dataset = replace(dataset, time_E=None, clock=False)
    if s is not None:
        dataset = replace(dataset, part_E=np.array(parts, np.uint8))
    notes = times.notes(columns.drop_untimed)
    places = {"user": u, "item": i, "time": t, "title": n, "split": s}
    taken = {kind: header[at] for kind, at in places.items() if at is not None}
    left = [at for at, column in enumerate(header) if column and at not in places.values()]
    if columns.time is None and (t is None or _plain(header[t]) in CLOCKLESS):
        notes += _missed_times(header, sample, left)
    return Imported(dataset, notes, taken, tuple(header[at] for at in left)), titles


def _missed_times(header: list[str], sample: list[list[Any]], left: list[int]) -> tuple[str, ...]:
    """A hint about the first column that seems to have times and was not read."""
    for at in left:
        name = header[at]
        if looks_like_times(name, [row[at] for row in sample]):
            how = f"say --time {shlex.quote(name)}, or time={name!r} in Python, to use it"
            return (f"the column '{name}' looks like times and was ignored; {how}",)
    return ()


def _read_titles(table: Table, columns: Columns, where: str) -> dict[str, str]:
    header, rows = table
    i = _needed(header, "item", columns.item if columns.item in header else None, where, columns)
    n = _place(header, "title", columns.title if columns.title in header else None, where)
    if n is None and "name" in header:  # in a table of users it could be the name of a person
        n = header.index("name")
    if n is None:
        there = f"it has: {', '.join(header)}; say {columns.option('title', 'COLUMN')}"
        raise CoveyError(f"{where} has no column for the title; {there}")
    ids = _Ids("item")
    return {ids.read(row[i]): _title(row[n]) for row in rows}


def _needed(header: list[str], kind: str, given: str | None, where: str, columns: Columns) -> int:
    place = _place(header, kind, given, where)
    if place is None:
        bare = "" if columns.python else ", or --columns for a file without a header"
        raise CoveyError(
            f"{where} has no column for the {kind}; it has: {', '.join(header) or 'nothing'};"
            f" say {columns.option(kind, 'COLUMN')}{bare}"
        )
    return place


def _place(header: list[str], kind: str, given: str | None, where: str) -> int | None:
    """The place of a column: the given one, or the one with the most usual name."""
    if given:
        if given not in header:
            there = f"it has: {', '.join(header)}; is the delimiter right?"
            raise CoveyError(f"{where} has no column '{given}'; {there}")
        return header.index(given)
    plain = [_plain(name) for name in header]
    aliases = [] if given == "" else ALIASES[kind].split()
    return next((plain.index(alias) for alias in aliases if alias in plain), None)


def _title(value: Any) -> str:
    """The title in one line; empty for a missing value."""
    return "" if value is None or value != value else " ".join(str(value).split())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


class _Ids:
    """Reads the ids of one column as text; 3.0 is 3, since DataFrames turn integers into floats."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.type: bool | None = None

    def read(self, value: Any) -> str:
        text = isinstance(value, str)
        if value is None or value != value or (text and not value.strip()):
            raise ValueError(f"a row without {self.kind}; fix or remove it")
        if self.type is None:
            self.type = text
        if text != self.type:
            why = f"the {self.kind} column mixes numbers and text (here {value!r})"
            raise ValueError(f"{why}; make it one or the other")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value).strip()
