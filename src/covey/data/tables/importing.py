"""A user's own table as a dataset: CSV and its kin, RecBole's .inter, Parquet, a DataFrame.

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
from covey.data.dataset import Dataset, check
from covey.data.public.formats import NO_TIME, Row, collect, with_titles
from covey.data.supplied_split import part_of, together

from .reader import Table, of_frame, open_table
from .times import Times, looks_like_times

SAMPLE = 20  # rows in which a column that is not read is looked at
CLOCKLESS = ("order", "position", "rank")  # places in a user's history
ALIASES = {
    "user": "user userid uid username reviewerid customer customerid client clientid member memberid visitor visitorid"
    " account accountid person personid reader readerid viewer viewerid",
    "item": "item itemid iid product productid movie movieid film filmid asin parentasin sku article articleid artist"
    " artistid business businessid book bookid isbn song songid track trackid game gameid content contentid",
    "time": "timestamp time date datetime ts unixreviewtime unixtime reviewdate createdat order position rank",
    "title": "title itemtitle itemname movietitle producttitle productname booktitle artistname",
}


@dataclass(frozen=True)
class Columns:
    """Which columns to read and how; None: by their usual names."""

    user: str | None = None
    item: str | None = None
    time: str | None = None  # empty: none
    title: str | None = None
    split: str | None = None  # which part a row belongs to: train, valid or test
    names: tuple[str, ...] = ()  # of a file without a header
    delimiter: str | None = None  # None: found from the first lines
    encoding: str = "utf-8-sig"
    drop_untimed: bool = (
        False  # drop rows without a time; else one such row means that no times are used
    )
    python: bool = (
        False  # the caller is Python: messages name arguments, not options of the command
    )

    def option(self, kind: str, value: str) -> str:
        """How the caller says which column is which."""
        return f"{kind}={value!r}" if self.python else f"--{kind} {value or repr(value)}"


@dataclass(frozen=True)
class Imported:
    """A dataset, and what a user should know about how it came to be."""

    dataset: Dataset
    notes: tuple[str, ...] = ()
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # what was read -> the column that it was read from
    ignored: tuple[str, ...] = ()  # columns of the file that were not read

    def columns(self) -> str:
        """customer (user), sku (item); ignored: price"""
        read = ", ".join(f"{column} ({kind})" for kind, column in self.taken.items())
        return read + (f"; ignored: {', '.join(self.ignored)}" if self.ignored else "")


@dataclass(frozen=True)
class _Read:
    """What one table had."""

    made: Imported
    titles: dict[str, str]


USUAL = Columns()


def from_file(
    path: str | Path,
    name: str,
    columns: Columns = USUAL,
    items: str | Path | None = None,
    parts: Mapping[str, Path] | None = None,
) -> Imported:
    """Interactions of a file, with the titles in it or in a second one; `parts`: files of a "valid" and a "test" part.

    With such parts, the first file is what trains.
    """
    if parts and columns.split:
        raise CoveyError(
            "a split is a column or files of its own; leave out --split, or --valid and --test"
        )
    path = Path(path)
    first = _read_file(path, name, columns)
    dataset, titles, notes = first.made.dataset, first.titles, first.made.notes
    if parts:
        made = {"train": dataset}
        for part, file in parts.items():
            other = _read_file(file, name, columns)
            made[part] = other.made.dataset
            titles, notes = other.titles | titles, (*notes, *other.made.notes)
        dataset, untimed = together(made), {d.time_E is None for d in made.values()}
        notes += ("some parts have no times: none are used",) if len(untimed) > 1 else ()
    if items is None and path.suffix == ".inter" and path.with_suffix(".item").exists():
        items = path.with_suffix(".item")
    if items is not None:
        with open_table(Path(items), None, columns.encoding) as table:
            titles |= _read_titles(table, columns, str(items))
    return _whole(replace(first.made, dataset=dataset, notes=notes), titles)


def from_frame(frame: Any, name: str, columns: Columns = USUAL, items: Any = None) -> Imported:
    """Interactions of a DataFrame, with the titles in it or in a second one."""
    try:
        read = _read(of_frame(frame), name, columns, "the DataFrame")
        titles = read.titles
        if items is not None:
            titles |= _read_titles(of_frame(items), columns, "the DataFrame of items")
    except (ValueError, TypeError) as error:
        raise CoveyError(f"the DataFrame: {error}") from None
    return _whole(read.made, titles)


def _whole(made: Imported, titles: Mapping[str, str]) -> Imported:
    return replace(
        made, dataset=check(with_titles(made.dataset, titles.items()) if titles else made.dataset)
    )


def _read_file(path: Path, name: str, columns: Columns) -> _Read:
    with open_table(path, columns.delimiter, columns.encoding, columns.names) as table:
        return _read(table, name, columns, str(path))


def _read(table: Table, name: str, columns: Columns, where: str) -> _Read:
    header, rows = table
    u, i = (
        _needed(header, kind, getattr(columns, kind), where, columns) for kind in ("user", "item")
    )
    t, n = (
        _place(header, "time", columns.time, where),
        _place(header, "title", columns.title, where),
    )
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
    if (
        times.missing and not columns.drop_untimed
    ):  # half a clock would put rows into the wrong order
        dataset = replace(dataset, time_E=None, clock=False)
    if s is not None:
        dataset = replace(dataset, part_E=np.array(parts, np.uint8))
    notes = times.notes(columns.drop_untimed)
    places = {"user": u, "item": i, "time": t, "title": n, "split": s}
    return _Read(
        _told(Imported(dataset, notes), header, places, sample, columns.time is None), titles
    )


def _told(
    made: Imported,
    header: list[str],
    places: dict[str, int | None],
    sample: list[list[Any]],
    guessed: bool,
) -> Imported:
    """With what was read from which column, and a hint where times may have been missed."""
    taken = {kind: header[at] for kind, at in places.items() if at is not None}
    left = [at for at, name in enumerate(header) if name and at not in places.values()]
    timed = "time" in taken and _plain(taken["time"]) not in CLOCKLESS
    hints = _missed_times(header, sample, left) if guessed and not timed else ()
    return replace(
        made, notes=(*made.notes, *hints), taken=taken, ignored=tuple(header[at] for at in left)
    )


def _missed_times(header: list[str], sample: list[list[Any]], left: list[int]) -> tuple[str, ...]:
    """What to say of the first column that seems to have times and was not read."""
    for at in left:
        if looks_like_times(header[at], [row[at] for row in sample]):
            how = (
                f"say --time {shlex.quote(header[at])}, or time={header[at]!r} in Python, to use it"
            )
            return (f"the column '{header[at]}' looks like times and was ignored; {how}",)
    return ()


def _read_titles(table: Table, columns: Columns, where: str) -> dict[str, str]:
    header, rows = table
    i = _needed(header, "item", columns.item if columns.item in header else None, where, columns)
    n = _place(header, "title", columns.title if columns.title in header else None, where)
    n = (
        header.index("name") if n is None and "name" in header else n
    )  # beside a user it could be a person's
    if n is None:
        say = columns.option("title", "COLUMN")
        raise CoveyError(
            f"{where} has no column for the title; it has: {', '.join(header)}; say {say}"
        )
    own = _Ids("item")
    return {own.read(row[i]): _title(row[n]) for row in rows}


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
    """Where a column is: the one that was named, or the one with the likeliest name."""
    if given:
        if given not in header:
            raise CoveyError(
                f"{where} has no column '{given}'; it has: {', '.join(header)}; is the delimiter right?"
            )
        return header.index(given)
    plain = [_plain(name) for name in header]
    aliases = [] if given == "" else ALIASES[kind].split()
    return next((plain.index(alias) for alias in aliases if alias in plain), None)


def _title(value: Any) -> str:
    """One line; empty where there is none."""
    return "" if value is None or value != value else " ".join(str(value).split())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


class _Ids:
    """Ids of one column as text; 3.0 of a frame that knew no whole numbers is 3."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.type: bool | None = None

    def read(self, value: Any) -> str:
        text = isinstance(value, str)
        if value is None or value != value or (text and not value.strip()):
            raise ValueError(f"a row without {self.kind}; mend or remove it")
        if self.type is None:
            self.type = text
        if text != self.type:
            raise ValueError(
                f"the {self.kind} column mixes numbers and text (here {value!r}); make it one or the other"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value).strip()
