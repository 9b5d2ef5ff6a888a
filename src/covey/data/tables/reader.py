"""Opens files with one interaction per row: CSV and similar text, JSON lines, RecBole, Parquet."""

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from covey.core.errors import CoveyError
from covey.data.public.archives import ARCHIVES, DAMAGED, files, unzipped

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", "::": "::"}
JSON = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", ".txt", ".dat", ".inter", *JSON, *PARQUET)  # endings of such files
SNIFFED = 20  # lines from which the delimiter is found
LONGEST = 1 << 17  # characters of a line that are read at once
ROWS = 512  # that are read at once: more make Python's garbage collector search all objects
TYPED = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole's headers
Row = list[Any]
Chunk = Callable[[int], list[Any]]  # some rows: gives the cells of a column by its place


class Table(NamedTuple):
    """The names of the columns, and the rows in chunks."""

    header: list[str]
    chunks: Iterator[Chunk]


class Misread(ValueError):
    """A wrong row, which `wrong` recognises, so that its line can be named."""

    def __init__(self, why: str, wrong: Callable[[Row], bool] | None = None, line: int = 0) -> None:
        super().__init__(why)
        self.wrong, self.line = wrong, line

    @classmethod
    def cell(cls, why: str, at: int, value: Any) -> "Misread":
        return cls(why, lambda row: at < len(row) and row[at] == value)


@contextmanager
def open_table(
    path: Path, delimiter: str | None, encoding: str, names: tuple[str, ...] = ()
) -> Iterator[Table]:
    """Opens a file as a table; errors in the block name the file and the line.

    The file may be a .gz, or in an archive: x.zip, or x.zip/ratings.csv if it has several. The
    delimiter None is found from the first lines. `names` is the header of a file without one.
    """
    text: _Text | None = None
    try:
        with ExitStack() as stack:
            if path.name.endswith(PARQUET):
                from .frames import of_parquet  # loads narwhals

                yield of_parquet(path, stack)
                return
            text = _Text(*_lines(path, encoding, stack), delimiter, names)
            yield Table(text.header, text.chunks())
    except UnicodeDecodeError:
        name = encoding.upper().removesuffix("-SIG")
        remedy = "say which with covey data import --encoding, such as cp1252 or utf-16"
        raise CoveyError(f"{path} is not {name} text; {remedy}") from None
    except (ValueError, TypeError, OverflowError, csv.Error) as error:
        line = text.line(error) if text else getattr(error, "line", 0)
        why = " ".join(str(error).split())
        raise CoveyError(f"{path}{f', line {line}' if line else ''}: {why}") from None
    except LookupError as error:  # an encoding that does not exist
        raise CoveyError(f"cannot read {path}: {error}") from None
    except DAMAGED as error:
        raise CoveyError(_unreadable(path, error)) from None


def is_file(path: str | Path) -> bool:
    """Whether there is such a file, or an archive that may have it."""
    return Path(path).is_file() or _archive(Path(path)) is not None


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no file {path}; is the path right?"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder; name the file in it that has the interactions"
    return f"cannot read {path}: {error}; is it whole?"


def _archive(path: Path) -> Path | None:
    parts = (path, *path.parents)
    return next((p for p in parts if p.name.endswith(ARCHIVES) and p.is_file()), None)


def _lines(path: Path, encoding: str, stack: ExitStack) -> tuple[str, Iterator[str]]:
    """The name of the file without .gz, and its lines; too long ones come in pieces."""
    if archive := _archive(path):
        there = files(archive, stack)
        name = _member(list(there), archive, path.relative_to(archive).as_posix())
        opener = there[name]
    else:
        name, opener = path.name, partial(path.open, "rb")
    binary = stack.enter_context(unzipped(name, stack.enter_context(opener())))
    text = stack.enter_context(io.TextIOWrapper(binary, encoding=encoding, newline=""))
    return name.removesuffix(".gz"), iter(partial(text.readline, LONGEST), "")


def _member(names: list[str], archive: Path, wanted: str) -> str:
    tables = [name for name in names if name.removesuffix(".gz").endswith(TABLES)] or names
    if wanted != ".":
        tables = [name for name in names if f"/{name}".endswith(f"/{wanted}")]
    if len(tables) != 1:
        there = ", ".join((tables or names)[:8])
        found = "several files" if tables else "no such file"
        example = f"name one, such as {archive}/{(tables or names or ['ratings.csv'])[0]}"
        raise CoveyError(f"{archive} has {found}: {there}; {example}")
    return tables[0]


class _Text:
    """The rows of a text in chunks, and the number of the line that is wrong."""

    def __init__(
        self, name: str, lines: Iterator[str], delimiter: str | None, names: tuple[str, ...]
    ) -> None:
        first = list(itertools.islice(lines, 10 * SNIFFED))
        head = [line for line in first if line.strip()][:SNIFFED]
        if not head:
            raise ValueError("it is empty; a header and one row for each interaction are needed")
        lines = itertools.chain(first, lines)
        self.start = 0  # lines before the chunk
        self.raw: list[Row] = []
        self.rows: Iterator[Row]
        self.full: Callable[[Row], object] = any
        if name.endswith(JSON):
            records = _records(lines)
            known = list(itertools.islice(records, 10 * SNIFFED))
            self.header = list(names) or list(dict.fromkeys(key for row in known for key in row))
            records = itertools.chain(known, records)
            self.rows = ([row.get(k) for k in self.header] if row else [] for row in records)
            self.full = len
            return
        if name.endswith((".inter", ".item")):  # RecBole's files have no quotes
            self.rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        else:
            self.rows = _split(lines, delimiter or _sniff(head))
        if not names:
            found = ((n, row) for n, row in enumerate(self.rows, 1) if any(row))
            number, first_row = next(found, (0, []))
            self.start = getattr(self.rows, "line_num", number)
            names = tuple(TYPED.sub("", cell.strip()) for cell in first_row)
        self.header = distinct(list(names))

    def chunks(self) -> Iterator[Chunk]:
        width = len(self.header)
        while raw := list(itertools.islice(self.rows, ROWS)):
            self.raw, rows = raw, list(filter(self.full, raw))
            # Every row needs the columns of the header; more than these have to be empty.
            if set(map(len, rows)) - {width}:
                for row in rows:
                    if len(row) < width or any(row[width:]):
                        raise _wrong_width(row, width)
            if rows:
                yield partial(_column, rows)
            self.start = getattr(self.rows, "line_num", self.start + len(raw))

    def line(self, error: Exception) -> int:
        """The line of the wrong row, counted from 1; 0 if it is unknown."""
        if isinstance(error, csv.Error):
            return getattr(self.rows, "line_num", 0)
        if not isinstance(error, Misread) or error.wrong is None:
            return getattr(error, "line", 0)
        line = self.start
        for row in self.raw:
            line += 1 + sum(str(cell).count("\n") for cell in row)
            if error.wrong(row):
                return line
        return 0


def _column(rows: list[Row], at: int) -> list[Any]:
    return [row[at] for row in rows]


def of_rows(header: list[str], rows: Iterator[Any]) -> Table:
    chunks = iter(lambda: list(itertools.islice(rows, ROWS)), [])
    return Table(header, (partial(_column, chunk) for chunk in chunks))


def _split(lines: Iterable[str], mark: str) -> Iterator[Row]:
    """Splits lines at a delimiter; a space stands for any spaces and tabs."""
    if len(mark) == 1 and mark != " ":
        return csv.reader(lines, delimiter=mark, skipinitialspace=True)
    return (line.rstrip("\r\n").split(None if mark == " " else mark) for line in lines)


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The object of each line; lists and objects in it become text."""
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            raise Misread(f"no JSON ({getattr(error, 'msg', error)})", line=number) from None
        if not isinstance(found, dict):
            raise Misread("no JSON object; write one object in each line", line=number)
        yield {k: str(v) if isinstance(v, dict | list) else v for k, v in found.items()}


def _sniff(head: list[str]) -> str:
    """The delimiter that gives the most columns, and the same number in each of the first lines."""
    best, most, alike = "", (False, 1), {}
    for mark in (*DELIMITERS, " "):
        widths = [len(row) for row in _split(head[:-1] or head, mark) if row]
        alike[mark] = len(set(widths)) == 1
        if mark != " " and widths[0] > 1 and (alike[mark], widths[0]) > most:
            best, most = mark, (alike[mark], widths[0])
    if not best and alike[" "] and len(head[0].split()) > 1:
        return " "
    if not best:
        tried = ", ".join(DELIMITERS.values())
        remedy = "say which with covey data import --delimiter"
        raise ValueError(f"one column only, with any of {tried}, spaces; {remedy}")
    return best


def distinct(header: list[str]) -> list[str]:
    """Refuses two columns of one name; columns without a name are never read."""
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise ValueError(f"two columns are called '{twice}'; rename or remove one")
    return header


def _wrong_width(row: Row, width: int) -> Misread:
    quotes = "put quotes around text with a delimiter"
    remedy = "is the delimiter right?" if len(row) < width else quotes
    found = f"{len(row)} columns, the header has {width}; {remedy}"
    return Misread(found, lambda other: other is row)
