"""Tables of any common kind as a header and rows: text with a delimiter, RecBole's files, Parquet, a DataFrame."""

import csv
import gzip
import importlib
import itertools
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from covey.core.errors import CoveyError

if TYPE_CHECKING:
    import _csv

Table = tuple[list[str], Iterator[list[Any]]]
DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
TABLES = (".csv", ".tsv", ".txt", ".inter", ".parquet", ".pq")  # how the names of such files end
SNIFFED = 20  # lines
TYPED = re.compile(r":(token|float|token_seq|float_seq)$")  # RecBole's headers


@contextmanager
def open_table(
    path: Path, delimiter: str | None, encoding: str, names: tuple[str, ...] = ()
) -> Iterator[Table]:
    """A file's header (or the names given for one that has none) and rows; what goes wrong names the line."""
    line = 0
    try:
        if path.name.endswith((".parquet", ".pq")):
            yield of_frame(_parquet(path))
            return
        with _text(path, encoding) as file:
            head = list(itertools.islice((text for text in file if text.strip()), SNIFFED))
            if not head:
                raise CoveyError(
                    f"{path} is empty; a header and one row for each interaction are needed"
                )
            atomic = path.suffix in (".inter", ".item")
            mark = "\t" if atomic else delimiter or _sniff(head, path)
            file.seek(0)
            reader = _reader(file, mark, atomic)
            header = _distinct(list(names) or _header(next(filter(None, reader), [])))
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
    except LookupError as error:
        raise CoveyError(
            f"cannot read {path}: {error}"
        ) from None  # an encoding that does not exist
    except FileNotFoundError:
        raise CoveyError(f"no file {path}; is the path right?") from None
    except IsADirectoryError:
        raise CoveyError(
            f"{path} is a folder; name the file in it that has the interactions"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise CoveyError(f"cannot read {path}: {error}; is it whole?") from None


def of_frame(frame: Any) -> Table:
    """A DataFrame, whose columns are read as they are."""
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
        widths = [
            len(row)
            for row in csv.reader(head[:-1] or head, delimiter=mark, skipinitialspace=True)
            if row
        ]
        score = (len(set(widths)) == 1, widths[0])
        if widths[0] > 1 and score > most:
            best, most = mark, score
    if not best:
        tried = ", ".join(DELIMITERS.values())
        raise CoveyError(
            f"{path} has one column only, with any of {tried}; say which with covey data import --delimiter"
        )
    return best


def _reader(file: IO[str], mark: str, atomic: bool) -> "_csv.Reader":
    if atomic:  # RecBole quotes nothing
        return csv.reader(file, delimiter=mark, quoting=csv.QUOTE_NONE)
    return csv.reader(file, delimiter=mark, skipinitialspace=True)


def _header(row: list[str]) -> list[str]:
    return [TYPED.sub("", name.strip()) for name in row]


def _distinct(header: list[str]) -> list[str]:
    """Columns of one name could be mistaken for each other; nameless ones are never read."""
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice:
        raise ValueError(f"two columns are called '{twice}'; rename or remove one")
    return header


def _full(rows: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    for row in rows:
        if not row or not any(row):
            continue
        if len(row) < width:
            raise ValueError(f"{len(row)} columns, the header has {width}; is the delimiter right?")
        if any(row[width:]):
            raise ValueError(
                f"{len(row)} columns, the header has {width}; put quotes around text with a delimiter"
            )
        yield row


def _parquet(path: Path) -> Any:
    try:
        pandas = importlib.import_module("pandas")
        importlib.import_module("pyarrow")
    except ImportError as error:
        raise CoveyError(
            f"reading Parquet needs {error.name}: pip install pandas pyarrow; or save {path.name} as CSV"
        ) from None
    try:
        return pandas.read_parquet(path)
    except FileNotFoundError:
        raise
    except Exception as error:  # pyarrow has exceptions of its own
        raise CoveyError(
            f"cannot read {path}: {' '.join(str(error).split())}; is it a whole Parquet file?"
        ) from None
