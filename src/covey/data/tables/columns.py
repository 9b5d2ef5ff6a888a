"""Which columns of a table are read, and how their cells are read: ids, numbers, chosen values."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import compress
from typing import Any

import numpy as np

from covey.core.errors import CoveyError
from covey.data.dataset import Array, numbering

from .reader import Chunk, Misread
from .times import MISSING

LONGEST_ID = 1000  # characters
FEW = 20  # distinct values that a message names
CLOCKLESS = ("order", "position", "rank")  # names of positions in a user's history
ALIASES: dict[str, str] = tomllib.loads(
    resources.files(__package__).joinpath("aliases.toml").read_text("utf-8")
)


@dataclass(frozen=True)
class Columns:
    """Which columns to read, and how. A column that is None is found by its usual names."""

    user: str | None = None
    item: str | None = None
    time: str | None = None  # empty: no times are read
    title: str | None = None
    rating: str | None = None
    split: str | None = None  # which part a row belongs to: train, valid or test
    order: str | None = None  # settles the order of equal times
    names: tuple[str, ...] = ()  # of all columns, for a file without a header
    delimiter: str | None = None  # of any length; None: found from the first lines
    encoding: str = "utf-8-sig"
    time_format: str | None = None  # as in datetime.strptime; None: numbers and usual dates
    min_rating: float | None = None  # rows with a lower rating are left out
    where: Mapping[str, str | Collection[str]] = field(default_factory=dict)  # column -> values
    drop_incomplete: bool = False  # leave out rows without a user, item, time or rating
    python: bool = False  # messages name arguments of Python, not options of the command line

    def option(self, kind: str, value: str = "") -> str:
        """How the caller names an option, for messages."""
        if self.python:
            return f"{kind}={value}" if value else f"{kind}=True"
        return f"--{kind.replace('_', '-')} {value}".rstrip()

    def places(self, header: list[str], where: str) -> dict[str, int]:
        """The place of each column that there is; `where` names the table in messages."""
        needed = ["user", "item"] + ["rating"] * (self.min_rating is not None)
        for kind in needed:
            self.needed(header, kind, getattr(self, kind), where)
        found = {kind: place(header, kind, getattr(self, kind), where) for kind in ALIASES}
        return {kind: at for kind, at in found.items() if at is not None}

    def needed(self, header: list[str], kind: str, given: str | None, where: str) -> int:
        """The place of a column without which the table cannot be read."""
        at = place(header, kind, given, where)
        if at is None:
            bare = "" if self.python else ", or --columns for a file without a header"
            name = "'COLUMN'" if self.python else "COLUMN"
            there = f"it has: {', '.join(header) or 'nothing'}; say {self.option(kind, name)}{bare}"
            raise CoveyError(f"{where} has no column for the {kind}; {there}")
        return at


def place(header: list[str], kind: str, given: str | None, where: str) -> int | None:
    """The place of a column: the given one, or the one with the most usual name."""
    if given:
        if given not in header:
            there = f"it has: {', '.join(header)}; is the delimiter right?"
            raise CoveyError(f"{where} has no column '{given}'; {there}")
        return header.index(given)
    aliases = [] if given == "" else ALIASES[kind].split()
    names = [plain(name) for name in header]
    return next((names.index(alias) for alias in aliases if alias in names), None)


def plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


class Ids:
    """Numbers the ids of one column; 3.0 is 3, since DataFrames turn integers into floats."""

    def __init__(self, kind: str, typed: bool) -> None:
        self.kind, self.typed = kind, typed  # typed: ids that are whole numbers stay such
        self.cells = numbering()
        self.parts: list[Array] = [np.empty(0, np.int32)]

    def add(self, cells: Sequence[Any]) -> None:
        self.parts.append(np.fromiter(map(self.cells.__getitem__, cells), np.int32, len(cells)))

    def finish(self) -> tuple[Array, Array]:
        """The number of each row's id, -1 where there is none, and the ids."""
        names: dict[str, int] = {}
        kinds: dict[type, Any] = {}
        number = np.full(len(self.cells), -1, np.int32)
        for at, cell in enumerate(self.cells):
            if text := clean(cell):
                kinds.setdefault(type(cell), cell)
                number[at] = names.setdefault(text, len(names))
        if str in kinds and len(kinds) > 1:
            why = f"the {self.kind} column mixes numbers and text"
            raise ValueError(f"{why} ({list(kinds.values())[:2]}); make it one or the other")
        if longest := next((name for name in names if len(name) > LONGEST_ID), ""):
            raise ValueError(f"an id of the {self.kind} has {len(longest):,} characters")
        ids = np.array(list(names), np.str_)
        whole = self.typed and {int} == set(kinds) and ids.itemsize < 4 * 19  # fits in 64 bits
        return number[np.concatenate(self.parts)], ids.astype(np.int64) if whole else ids


def clean(value: Any) -> str:
    """An id as text; empty for a missing value."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


class Distinct:
    """Reads each distinct cell of a column once, as a number; `read` refuses by a ValueError."""

    def __init__(self, at: int, read: Callable[[Any], float], kind: str = "f8") -> None:
        self.at, self.read, self.kind = at, read, kind
        self.parts: list[Array] = [np.empty(0, kind)]

    def add(self, cells: Sequence[Any]) -> None:
        known = dict.fromkeys(cells)
        for cell in known:
            try:
                known[cell] = self.read(cell)
            except ValueError as error:
                raise Misread.cell(str(error), self.at, cell) from None
        self.parts.append(np.array([known[cell] for cell in cells], self.kind))

    def finish(self) -> Array:
        return np.concatenate(self.parts)


def rating(cell: Any, wanted: bool = True) -> float:
    """A rating, NaN if it is missing; text is an error only where ratings are `wanted`."""
    text = clean(cell).lower()
    try:
        return float("nan") if text in MISSING else float(text)
    except ValueError:
        if not wanted:
            return float("nan")
        raise ValueError(f"{cell!r} is no rating; use numbers") from None


class Chosen:
    """Keeps the rows with the values that `Columns.where` asks for."""

    def __init__(self, header: list[str], columns: Columns, where: str) -> None:
        several = {k: [v] if isinstance(v, str) else v for k, v in columns.where.items()}
        self.wanted = {k: set(map(str, values)) for k, values in several.items()}
        self.at = {k: place(header, "", k, where) or 0 for k in self.wanted}
        self.rows = self.kept = 0
        self.seen: dict[str, None] = {}

    def of(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The chunks with the rows that are kept."""
        for chunk in chunks:
            masks = [self._hits(chunk(self.at[k]), k) for k in self.wanted]
            mask = np.logical_and.reduce(masks)
            self.rows, self.kept = self.rows + mask.size, self.kept + int(mask.sum())
            yield partial(_compressed, chunk, mask) if masks else chunk
        if self.wanted and not self.kept:
            raise ValueError(f"no row has what was asked for; there is {', '.join(self.seen)}")

    def _hits(self, cells: Sequence[Any], column: str) -> Array:
        texts = list(map(clean, cells))
        if len(self.seen) < FEW:
            self.seen |= {f"{column}={text}": None for text in dict.fromkeys(texts[:FEW])}
        return np.fromiter(map(self.wanted[column].__contains__, texts), bool, len(texts))

    def notes(self) -> tuple[str, ...]:
        asked = " and ".join(f"{k} is {' or '.join(sorted(v))}" for k, v in self.wanted.items())
        return (f"{self.kept:,} of {self.rows:,} rows are kept: {asked}",) if asked else ()


def _compressed(chunk: Chunk, mask: Array, at: int) -> list[Any]:
    return list(compress(chunk(at), mask))
