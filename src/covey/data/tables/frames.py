"""Tables in memory: DataFrames of any library that narwhals knows, Parquet, matrices, pairs."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from covey.core.errors import CoveyError

from .reader import TABLES, Table, distinct

CHUNK = 1 << 16  # rows that are read at once
TAKES = (
    "the name of a dataset, a file (" + ", ".join((*TABLES, ".npz")) + "; also .gz and .zip), a"
    " DataFrame of polars, pandas or pyarrow, a scipy sparse matrix of users and items, or a list"
    " of pairs (user, item) or triples (user, item, time)"
)


def of_object(source: Any) -> tuple[Table, str]:
    """A DataFrame, sparse matrix or list of pairs as a table, and what it is, for messages."""
    if hasattr(source, "tocoo"):
        return _of_sparse(source), "the sparse matrix"
    if isinstance(source, list | tuple):
        return _of_pairs(source), "the list of pairs"
    try:
        frame = nw.from_native(source)
    except TypeError:
        why = f"a dataset cannot be made of a {type(source).__name__}; covey.load takes {TAKES}"
        raise CoveyError(why) from None
    except nw.exceptions.DuplicateError:
        distinct([str(name) for name in getattr(source, "column_names", source.columns)])
        raise
    whole = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    slices = (whole[begin : begin + CHUNK] for begin in range(0, len(whole), CHUNK))
    return _of_frames(list(whole.columns), slices), "the DataFrame"


def _of_frames(names: list[Any], frames: Iterator[Any]) -> Table:
    header = distinct([str(name).strip() for name in names])
    return Table(header, (partial(_cells, frame, names) for frame in frames))


def _cells(frame: Any, names: list[Any], at: int) -> list[Any]:
    """The values of a column; dates become seconds since 1970."""
    column = frame.get_column(names[at])
    if column.dtype == nw.Date:
        column = column.cast(nw.Datetime("us"))
    if column.dtype == nw.Datetime:
        return (column.dt.timestamp("us").cast(nw.Float64).to_numpy() / 1e6).tolist()
    cells = column.to_list()
    if column.null_count():  # some libraries have missing values that cannot be compared
        return [None if null else cell for cell, null in zip(cells, column.is_null().to_list())]
    return cells


def of_parquet(path: Path, stack: ExitStack) -> Table:
    """A Parquet file, read in pieces; it is closed with the stack."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        remedy = f"pip install 'covey[tables]'; or save {path.name} as CSV"
        raise CoveyError(f"reading Parquet needs pyarrow: {remedy}") from None
    file = stack.enter_context(parquet.ParquetFile(path))
    tables = (pyarrow.Table.from_batches([batch]) for batch in file.iter_batches(CHUNK))
    frames = (nw.from_native(table, eager_only=True) for table in tables)
    return _of_frames(file.schema_arrow.names, frames)


def _of_sparse(matrix: Any) -> Table:
    """One row for each entry that is not 0; ids are the numbers of rows and columns."""
    entries = matrix.tocoo()
    if len(entries.shape) != 2:
        raise ValueError(f"it has {len(entries.shape)} dimensions; users and items are 2")
    keep_E = entries.data != 0
    user_E, item_E = (np.asarray(at)[keep_E] for at in entries.coords)
    return _of_columns(("user", "item", "rating"), (user_E, item_E, entries.data[keep_E]))


def _of_pairs(rows: Sequence[Any]) -> Table:
    wrong = next((row for row in rows if not isinstance(row, tuple | list)), None)
    widths = {len(row) for row in rows} if wrong is None else set()
    if wrong is not None or len(widths) > 1 or not widths <= {2, 3}:
        found = repr(wrong) if wrong is not None else f"rows of lengths {sorted(widths)}"
        raise ValueError(f"found {found[:80]}; covey.load takes {TAKES}")
    return _of_columns(("user", "item", "time")[: max([2, *widths])], [*zip(*rows)])


def _of_columns(names: Sequence[str], columns: Sequence[Any]) -> Table:
    def part(begin: int, at: int) -> list[Any]:
        cells = columns[at][begin : begin + CHUNK]
        return cells.tolist() if isinstance(cells, np.ndarray) else list(cells)

    rows = len(columns[0]) if columns else 0
    return Table([*names], (partial(part, begin) for begin in range(0, rows, CHUNK)))
