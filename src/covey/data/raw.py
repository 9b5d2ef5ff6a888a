"""The public datasets as their authors publish them, in a folder, an archive or one file of a user's own copy."""

import ast
import csv
import gzip
import io
import json
import tarfile
import zipfile
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..core import CoveyError
from .dataset import Array, Dataset, check
from .folder import Filter, apply_filter
from .sources import Form, Source

Row = tuple[str, str, float]  # user, item, time; nan: no time
Rows = Iterator[Row]
Titles = Iterator[tuple[str, str]]
NO_TIME = float("nan")
DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)


def parse(source: Source, copy: str | Path) -> Dataset:
    """A prepared dataset from the original's files; where its titles are there too, with them."""
    copy, form = Path(copy), FORMS[source.form]
    with _member(copy, source.rows, form[0]) as (name, lines):
        if lines is None:
            raise CoveyError(f"{copy} has no file {' or '.join(source.rows)}; get it from {source.page}")
        dataset = collect(source.name, form[1](name, lines))
    with _member(copy, source.items, form[0]) as (_, lines):
        dataset = with_titles(dataset, form[2](lines)) if lines is not None else dataset
    return check(_cut(dataset, source))


def collect(name: str, rows: Rows, clock: bool = True) -> Dataset:
    """Columns from rows; a dataset without any time has none."""
    users, items = _numbering(), _numbering()
    user_E, item_E, time_E = array("i"), array("i"), array("d")
    for user, item, time in rows:
        user_E.append(users[user])
        item_E.append(items[item])
        time_E.append(time)
    times = np.array(time_E, np.float64)
    timed = bool(len(times)) and not np.isnan(times).all()
    return Dataset(
        name,
        len(users),
        len(items),
        np.array(user_E, np.int32),
        np.array(item_E, np.int32),
        times if timed else None,
        np.array(list(users), np.str_),
        np.array(list(items), np.str_),
        clock=clock and timed,
    )


def with_titles(dataset: Dataset, titles: Iterable[tuple[str, str]]) -> Dataset:
    """An item without a title shows its own id."""
    known = {item: title for item, title in titles if title}
    assert dataset.items is not None
    return replace(dataset, titles=tuple(known.get(item) or item for item in dataset.items.tolist()))


def _numbering() -> defaultdict[str, int]:
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    return ids


def _cut(dataset: Dataset, source: Source) -> Dataset:
    if source.years and dataset.time_E is not None:
        first, last = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in source.years)
        keep_E = (dataset.time_E >= first) & (dataset.time_E < last)
        dataset = _rows_of(dataset, keep_E)
    dataset = apply_filter(dataset, source.keep)
    while source.core:  # each pass may leave others short
        before, dataset = len(dataset), apply_filter(dataset, Filter(source.core, source.core))
        if len(dataset) == before:
            break
    return dataset


def _rows_of(dataset: Dataset, keep_E: Array) -> Dataset:
    """Some of the rows; ids that have none left are dropped."""
    assert dataset.time_E is not None
    columns = {k: getattr(dataset, k)[keep_E] for k in ("user_E", "item_E", "time_E")}
    if not keep_E.any():
        raise CoveyError(f"dataset '{dataset.name}' has no row of the years it is cut to; is this the right file?")
    return apply_filter(replace(dataset, **columns), Filter(min_user=1, min_item=1))


# --- lines of each form ---


def _split(separator: str | None, least: int) -> Callable[[Iterable[str]], Iterator[list[str]]]:
    """Lines as lists of at least so many texts."""

    def cells(lines: Iterable[str]) -> Iterator[list[str]]:
        for line in lines:
            if line := line.rstrip("\r\n"):
                row = line.split(separator)
                if len(row) < least:
                    raise ValueError(f"expected {least} columns, found {len(row)}")
                yield row

    return cells


def _movielens(separator: str) -> Callable[[str, IO[str]], Rows]:
    cells = _split(separator, 4)
    return lambda name, lines: ((row[0], row[1], float(row[3])) for row in cells(lines))


def _filmtrust(name: str, lines: IO[str]) -> Rows:
    return ((row[0], row[1], NO_TIME) for row in _split(None, 3)(lines))


def _lastfm(name: str, lines: IO[str]) -> Rows:
    """Tag assignments; the older table has day, month and year, the other milliseconds."""
    header = next(lines, "").split()
    for row in _split("\t", len(header))(lines):
        if "timestamp" in header:
            yield row[0], row[1], float(row[3]) / 1000
        else:
            day, month, year = map(int, row[3:6])
            yield row[0], row[1], datetime(year, month, day, tzinfo=UTC).timestamp()


def _amazon(name: str, lines: IO[str]) -> Rows:
    if name.endswith(".csv"):
        return ((row[0], row[1], float(row[3])) for row in _split(",", 4)(lines))
    return ((r["reviewerID"], r["asin"], float(r.get("unixReviewTime", NO_TIME))) for r in _records(lines))


def _yelp(name: str, lines: IO[str]) -> Rows:
    return ((r["user_id"], r["business_id"], _date(r["date"])) for r in _records(lines))


def _tenrec(name: str, lines: IO[str]) -> Rows:
    """A row is an impression; only clicks count, where the table tells."""
    for row in csv.DictReader(lines):
        if row.get("click", "1") not in ("0", "0.0"):
            yield row["user_id"], row["item_id"], NO_TIME


def _date(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """JSON lines; Amazon's metadata of 2014 are Python literals."""
    for line in lines:
        if line := line.strip():
            record = json.loads(line) if '"' in line[:2] else ast.literal_eval(line)
            if not isinstance(record, dict):
                raise ValueError("expected one JSON object")
            yield record


def _pairs(separator: str, header: bool = False) -> Callable[[IO[str]], Titles]:
    def titles(lines: IO[str]) -> Titles:
        if header:
            next(lines, "")
        return ((row[0], row[1]) for row in _split(separator, 2)(lines))

    return titles


def _named(own: str, title: str) -> Callable[[IO[str]], Titles]:
    return lambda lines: ((r[own], str(r.get(title) or "")) for r in _records(lines))


# encoding, rows, titles
FORMS: dict[Form, tuple[str, Callable[[str, IO[str]], Rows], Callable[[IO[str]], Titles]]] = {
    "movielens-100k": ("latin-1", _movielens("\t"), _pairs("|")),
    "movielens-1m": ("latin-1", _movielens("::"), _pairs("::")),
    "filmtrust": ("utf-8-sig", _filmtrust, _pairs("\t")),
    "lastfm": ("utf-8-sig", _lastfm, _pairs("\t", header=True)),
    "amazon": ("utf-8-sig", _amazon, _named("asin", "title")),
    "yelp": ("utf-8-sig", _yelp, _named("business_id", "name")),
    "tenrec": ("utf-8-sig", _tenrec, _pairs(",")),
}


# --- a file by its name: in a folder, in an archive, or given itself ---


class _Counted(io.TextIOWrapper):
    """Text that knows how many lines it has given."""

    count = 0

    def __next__(self) -> str:
        self.count += 1
        return super().__next__()


@contextmanager
def _member(copy: Path, names: tuple[str, ...], encoding: str) -> Iterator[tuple[str, IO[str] | None]]:
    """The first of these files that is there; what goes wrong inside names it and the line."""
    name, line, text = "", None, None
    try:
        with _open(copy, names) as (name, stream):
            if stream is None:
                yield "", None
                return
            text = _Counted(stream, encoding=encoding, newline=None)
            try:
                yield name.removesuffix(".gz"), text
            finally:
                line = text.count
    except (KeyError, IndexError, TypeError, ValueError, SyntaxError, csv.Error) as error:
        why = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise CoveyError(f"{copy}, {name} line {line}: {why}; is this the original file?") from None
    except FileNotFoundError:
        raise CoveyError(f"no file or folder {copy}; is the path right?") from None
    except DAMAGED as error:
        raise CoveyError(f"cannot read {copy}: {error}; is it whole? get it again") from None


@contextmanager
def _open(copy: Path, names: tuple[str, ...]) -> Iterator[tuple[str, IO[bytes] | None]]:
    if copy.is_dir():
        found = {p.name: p for p in sorted(copy.rglob("*"), reverse=True) if p.is_file()}
        name = next((n for n in names if n in found), "")
        with _plain(found[name]) if name else _nothing() as stream:
            yield name, stream
    elif zipfile.is_zipfile(copy):
        with zipfile.ZipFile(copy) as archive:
            inside = {Path(n).name: n for n in archive.namelist()}
            name = next((n for n in names if n in inside), "")
            with archive.open(inside[name]) if name else _nothing() as stream:
                yield name, _unzipped(name, stream)
    elif copy.suffix == ".zip":
        raise zipfile.BadZipFile("not a whole zip archive")
    elif copy.name.endswith((".tar", ".tgz", ".tar.gz")):
        with tarfile.open(copy) as archive:
            members = {Path(m.name).name: m for m in archive if m.isfile()}
            name = next((n for n in names if n in members), "")
            yield name, _unzipped(name, archive.extractfile(members[name]) if name else None)
    else:
        with copy.open("rb"):
            pass
        mine = copy.name in names or not any(map(_similar(copy.name), names))
        with _plain(copy) if mine and names else _nothing() as stream:
            yield copy.name, stream
