"""Readers of the cells of one column: ids, ratings, and the values that rows are chosen by."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from covey.core.errors import CoveyError
from covey.data.dataset import Array, numbering
from covey.data.supplied_split import part_of

from .columns import Columns, place
from .reader import Chunk, Misread
from .times import MISSING, numbers

LONGEST_ID = 1000  # characters
FEW = 100  # distinct values that are looked at for a message


class Ids:
    """Numbers the ids of one column; 3.0 is 3, since DataFrames turn integers into floats."""

    def __init__(self, kind: str, typed: bool) -> None:
        self.kind, self.typed = kind, typed  # typed: ids that are whole numbers stay such
        self.cells = numbering()
        self.parts: list[Array] = [np.empty(0, np.int32)]

    def add(self, cells: Sequence[Any]) -> None:
        number = map(self.cells.__getitem__, cells)
        self.parts.append(np.fromiter(number, np.int32, len(cells)))

    def finish(self) -> tuple[Array, Array]:
        """The number of each row's id, -1 where there is none, and the ids."""
        names: dict[Any, int] = {}
        kinds: dict[bool, Any] = {}
        number = np.full(len(self.cells), -1, np.int32)
        for at, cell in enumerate(self.cells):
            text = clean(cell)
            if text:
                kinds.setdefault(isinstance(cell, str), cell)
                number[at] = names.setdefault(text, len(names))
        if len(kinds) > 1:
            why = f"the {self.kind} column mixes numbers and text (here {kinds[False]!r}"
            raise ValueError(f"{why} and {kinds[True]!r}); make it one or the other")
        if longest := next((name for name in names if len(name) > LONGEST_ID), ""):
            raise ValueError(f"an id of the {self.kind} has {len(longest):,} characters")
        ids = np.array(list(names), np.str_)
        whole = {int} == set(map(type, self.cells)) and self.typed
        return number[np.concatenate(self.parts)], ids.astype(np.int64) if whole else ids


def clean(value: Any) -> str:
    """An id as text; empty for a missing value."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


class Ratings:
    """Reads ratings where a least one is asked for; otherwise finds out which there are."""

    def __init__(self, at: int, least: float | None) -> None:
        self.at, self.least = at, least
        self.parts: list[Array] = [np.empty(0)]
        self.seen: set[Any] = set()

    def add(self, cells: Sequence[Any]) -> None:
        if self.least is None:
            self.seen |= set(cells) if len(self.seen) <= FEW else set()
            return
        found = numbers(cells)
        if found is None:
            known = {cell: self._read(cell) for cell in dict.fromkeys(cells)}
            found = np.array([known[cell] for cell in cells], np.float64)
        self.parts.append(found)

    def _read(self, cell: Any) -> float:
        if clean(cell).lower() in MISSING:
            return float("nan")
        if (found := numbers([cell])) is None:
            raise Misread.cell(f"{cell!r} is no rating; use numbers", self.at, cell)
        return float(found[0])

    def note(self, column: str, option: str) -> tuple[str, ...]:
        """What happens to ratings that nobody asked about, if they differ."""
        found = numbers([cell for cell in self.seen if clean(cell).lower() not in MISSING])
        if found is None or len(found) < 2:
            return ()
        span = f"{found.min():g} to {found.max():g}"
        why = f"every row counts as a like, whatever its rating in '{column}' ({span})"
        return (f"{why}; {option} keeps the rows from N up",)


class Parts:
    """Reads which part of a split a row belongs to."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.parts: list[Array] = [np.empty(0, np.uint8)]

    def add(self, cells: Sequence[Any]) -> None:
        known = {cell: self._read(cell) for cell in dict.fromkeys(cells)}
        self.parts.append(np.array([known[cell] for cell in cells], np.uint8))

    def _read(self, cell: Any) -> int:
        try:
            return part_of(cell)
        except ValueError as error:
            raise Misread.cell(str(error), self.at, cell) from None


class Chosen:
    """Keeps the rows with the values that `Columns.where` asks for."""

    def __init__(self, header: list[str], columns: Columns, where: str) -> None:
        self.wanted = {k: (place(header, "", k, where), v) for k, v in columns.wanted().items()}
        self.where = where
        self.rows = self.kept = 0
        self.seen: dict[str, set[str]] = {column: set() for column in self.wanted}

    def of(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The chunks with the rows that are kept."""
        if not self.wanted:
            yield from chunks
            return
        for chunk in chunks:
            mask: Any = None
            for column, (at, values) in self.wanted.items():
                texts = list(map(clean, chunk(at or 0)))
                self.seen[column] |= set(texts) if len(self.seen[column]) <= FEW else set()
                hits = np.fromiter(map(values.__contains__, texts), bool, len(texts))
                mask = hits if mask is None else mask & hits
            self.rows, self.kept = self.rows + len(mask), self.kept + int(mask.sum())
            yield partial(_compressed, chunk, mask)
        if not self.kept:
            has = (f"'{c}' has {', '.join(sorted(seen)[:8])}" for c, seen in self.seen.items())
            raise CoveyError(f"{self.where}: no row is as asked; {'; '.join(has)}")

    def notes(self) -> tuple[str, ...]:
        asked = " and ".join(
            f"{c} is {' or '.join(sorted(v))}" for c, (_, v) in self.wanted.items()
        )
        return (f"{self.kept:,} of {self.rows:,} rows are kept: {asked}",) if self.wanted else ()


def _compressed(chunk: Chunk, mask: Array, at: int) -> list[Any]:
    return list(compress(chunk(at), mask))
