"""Reads tables as a header and rows: CSV and similar text, RecBole's files, Parquet, DataFrames."""

import csv
import gzip
import importlib
import itertools
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from covey.core.errors import CoveyError

Table = tuple[list[str], Iterator[list[Any]]]
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
TABLES = (".csv", ".tsv", ".txt", ".inter", ".parquet", ".pq")  # endings of such files
SNIFFED = 20  # lines from which the delimiter is found
TYPED = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole's headers


@contextmanager
def open_table(
    path: Path, delimiter: str | None, encoding: str, names: tuple[str, ...] = ()
) -> Iterator[Table]:
    """Opens a table as a header and an iterator of rows; errors in the block name the line.

    Args:
        path: The file.
        delimiter: The delimiter; None to find it from the first lines.
        encoding: The encoding of the text.
        names: The header, for a file without one.
    """
    line = 0
    try:
        if path.name.endswith((".parquet", ".pq")):
            yield of_frame(_parquet(path))
            return
        with _text(path, encoding) as file:
            head = list(itertools.islice((text for text in file if text.strip()), SNIFFED))
            if not head:
                remedy = "a header and one row for each interaction are needed"
                raise CoveyError(f"{path} is empty; {remedy}")
            file.seek(0)
            if path.suffix in (".inter", ".item"):  # RecBole's files have no quotes
                reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            else:
                mark = delimiter or _sniff(head, path)
                reader = csv.reader(file, delimiter=mark, skipinitialspace=True)
            first = names or [TYPED.sub("", x.strip()) for x in next(filter(None, reader), [])]
            header = _distinct(list(first))
            try:
                yield header, _full(reader, len(header))
            finally:
                line = reader.line_num
    except UnicodeDecodeError:
        name = encoding.upper().removesuffix("-SIG")
        remedy = "say which with covey data import --encoding, such as cp1252 or utf-16"
        raise CoveyError(f"{path} is not {name} text; {remedy}") from None
    except (ValueError, TypeError, OverflowError, csv.Error) as error:
        raise CoveyError(f"{path}{f', line {line}' if line else ''}: {error}") from None
    except LookupError as error:  # an encoding that does not exist
        raise CoveyError(f"cannot read {path}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CoveyError(_unreadable(path, error)) from None


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"no file {path}; is the path right?"
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder; name the file in it that has the interactions"
    return f"cannot read {path}: {error}; is it whole?"


def of_frame(frame: Any) -> Table:
    """A DataFrame as a header and rows; values are not converted."""
    header = _distinct([str(name).strip() for name in frame.columns])
    columns = [frame[name].tolist() for name in frame.columns]
    return header, (list(row) for row in zip(*columns))


def _text(path: Path, encoding: str) -> IO[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rt", encoding=encoding, newline="")


def _sniff(head: list[str], path: Path) -> str:
    """The delimiter that gives the most columns, and the same number in each of the first lines."""
    best, most = "", (False, 1)
    for mark in DELIMITERS:
        rows = csv.reader(head[:-1] or head, delimiter=mark, skipinitialspace=True)
        widths = [len(row) for row in rows if row]
        score = (len(set(widths)) == 1, widths[0])
        if widths[0] > 1 and score > most:
            best, most = mark, score
    if not best:
        why = f"{path} has one column only, with any of {', '.join(DELIMITERS.values())}"
        raise CoveyError(f"{why}; say which with covey data import --delimiter")
    return best


def _distinct(header: list[str]) -> list[str]:
    """Refuses two columns of one name; columns without a name are never read."""
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise ValueError(f"two columns are called '{twice}'; rename or remove one")
    return header


def _full(rows: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """The rows that are not blank, all of which need the columns of the header."""
    for row in rows:
        if not row or not any(row):
            continue
        found = f"{len(row)} columns, the header has {width}"
        if len(row) < width:
            raise ValueError(f"{found}; is the delimiter right?")
        if any(row[width:]):
            raise ValueError(f"{found}; put quotes around text with a delimiter")
        yield row


def _parquet(path: Path) -> Any:
    try:
        pandas = importlib.import_module("pandas")
        importlib.import_module("pyarrow")
    except ImportError as error:
        remedy = f"pip install pandas pyarrow; or save {path.name} as CSV"
        raise CoveyError(f"reading Parquet needs {error.name}: {remedy}") from None
    try:
        return pandas.read_parquet(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # pyarrow raises many kinds of exceptions
        why = " ".join(str(error).split())
        raise CoveyError(f"cannot read {path}: {why}; is it a whole Parquet file?") from None
