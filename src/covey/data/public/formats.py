"""Parsers of the public datasets, in the formats in which their authors publish them."""

import ast
import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from covey.core.errors import CoveyError
from covey.data.dataset import NO_TIME, Dataset, check, together, with_titles
from covey.data.folder import Filter, apply_filter
from covey.data.tables.importing import USUAL, read_table
from covey.data.tables.reader import of_rows

from .archives import member
from .registry import Source

Rows = Iterator[tuple[str, str, float]]  # user, item, time; NO_TIME if there is none
Titles = Iterator[tuple[str, str]]


def parse(source: Source, copy: str | Path) -> Dataset:
    """Reads a public dataset from a folder, an archive or a file; titles are read if they exist."""
    encoding, read_rows, read_titles = FORMS[source.form]
    parts = {"train": source.rows} | ({"test": source.test} if source.test else {})
    made = {}
    for part, files in parts.items():
        with member(copy, files, encoding, alone=not source.test) as (name, lines):
            if lines is None:
                no = f"{copy} has no file {' or '.join(files)}"
                raise CoveyError(f"{no}; get it from {source.page}")
            table = of_rows(["user", "item", "time"], read_rows(name, lines))
            made[part] = read_table(table, source.name, USUAL, str(copy))[0].dataset
    dataset = together(made) if source.test else made["train"]
    with member(copy, source.items, encoding) as (_, lines):
        dataset = with_titles(dataset, read_titles(lines)) if lines is not None else dataset
    # The papers keep some years, filtered rows or a k-core.
    if source.years and dataset.time_E is not None:
        first, last = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in source.years)
        keep_E = (dataset.time_E >= first) & (dataset.time_E < last)
        if not keep_E.any():
            why = f"dataset '{dataset.name}' has no row of the years it is cut to"
            raise CoveyError(f"{why}; is this the right file?")
        columns = {k: getattr(dataset, k)[keep_E] for k in ("user_E", "item_E", "time_E")}
        dataset = apply_filter(replace(dataset, **columns), Filter(min_user=1, min_item=1))
    return check(apply_filter(dataset, source.keep))


def _split(separator: str | None, least: int) -> Callable[[Iterable[str]], Iterator[list[str]]]:

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
    """Tag assignments; one table has day, month and year, the other has milliseconds."""
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
    found = _records(lines)
    return ((r["reviewerID"], r["asin"], float(r.get("unixReviewTime", NO_TIME))) for r in found)


def _yelp(name: str, lines: IO[str]) -> Rows:
    for r in _records(lines):
        when = datetime.fromisoformat(r["date"]).replace(tzinfo=UTC)
        yield r["user_id"], r["business_id"], when.timestamp()


def _lists(name: str, lines: IO[str]) -> Rows:
    """A user and the items of that user in each line; the list may be empty."""
    return ((row[0], item, NO_TIME) for row in _split(None, 1)(lines) for item in row[1:])


def _tenrec(name: str, lines: IO[str]) -> Rows:
    """Rows are impressions; if the table has a column for clicks, only clicks count."""
    for row in csv.DictReader(lines):
        if row.get("click", "1") not in ("0", "0.0"):
            yield row["user_id"], row["item_id"], NO_TIME


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Records from JSON lines, or from Python literals as in Amazon's metadata of 2014."""
    for line in lines:
        if line := line.strip():
            try:
                record = json.loads(line)
            except ValueError:
                record = ast.literal_eval(line)
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
FORMS: dict[str, tuple[str, Callable[[str, IO[str]], Rows], Callable[[IO[str]], Titles]]] = {
    "movielens-100k": ("latin-1", _movielens("\t"), _pairs("|")),
    "movielens-1m": ("latin-1", _movielens("::"), _pairs("::")),
    "filmtrust": ("utf-8-sig", _filmtrust, _pairs("\t")),
    "lastfm": ("utf-8-sig", _lastfm, _pairs("\t", header=True)),
    "amazon": ("utf-8-sig", _amazon, _named("asin", "title")),
    "yelp": ("utf-8-sig", _yelp, _named("business_id", "name")),
    "tenrec": ("utf-8-sig", _tenrec, _pairs(",")),
    "lists": ("utf-8-sig", _lists, _pairs(",")),
}
