"""The cells of a record: our figures, those of the paper, and reasons for missing ones."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from covey.study.batch import NOT_RUN
from covey.study.render.units import NOTHING, Stat, plain

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Column = Mapping[str, Any]
Row = Mapping[str, Any]
Columns = list[Column]


def stat(cell: Cell | None, metric: str) -> Stat:
    """Return our figure; its mean is NaN if every seed failed."""
    mean = cell["mean"].get(metric) if cell else None
    if cell is None or mean is None:
        return Stat.of(())
    values = tuple(cell["figures"].get(metric, ()))
    return Stat(mean, cell["spread"].get(metric) if len(values) > 1 else None, values)


def theirs(cell: Cell | None, metric: str) -> float:
    """Return the paper's figure, or NaN if it gives none."""
    value = cell["paper"].get(metric) if cell else None
    return math.nan if value is None else float(value)


def hole(cell: Cell | None) -> str:
    """Return why a cell has no figure of ours."""
    return failure(plain(cell["errors"][0]["error"])) if cell and cell["errors"] else NOTHING


def failure(why: str) -> str:
    """Return the text for a run without a result."""
    return why if why == NOT_RUN else f"failed: {why}"


def has_paper(record: Record, column: Column, metric: str) -> bool:
    """Return whether the paper gives any figure of a metric in a column."""
    cells = (row["cells"].get(column["label"]) for row in record["rows"])
    return any(not math.isnan(theirs(cell, metric)) for cell in cells)


def chunks(record: Record, metrics: Sequence[str], most: int, paper: bool = True) -> list[Columns]:
    """Split the columns of a record into tables that are narrow enough.

    `most` is the width of a table in figures of ours; a figure of the paper, which has no spread,
    takes half of that width and is there if `paper`. In a sweep, a table has one panel.
    """
    out: list[Columns] = []
    space, panel = 0, None
    for column in record["columns"]:
        wide = sum(2 + (paper and has_paper(record, column, metric)) for metric in metrics)
        if wide > space or (record["sweep"] and column["panel"] != panel):
            out.append([])
            space, panel = 2 * most, column["panel"]
        out[-1].append(column)
        space -= wide
    return out


def panels(record: Record) -> dict[str, Columns]:
    """Return the columns by panel."""
    out: dict[str, Columns] = {}
    for column in record["columns"]:
        out.setdefault(column["panel"], []).append(column)
    return out


def cells(record: Record) -> Iterator[tuple[Row, str, Cell]]:
    """Yield the row, the label of the column, and the cell."""
    for row in record["rows"]:
        for column in record["columns"]:
            if cell := row["cells"].get(column["label"]):
                yield row, column["label"], cell


def by_role(row: Row) -> str:
    """Return the label of a row, with its role if it has one."""
    return f"{plain(row['label'])} ({row['role']})" if row["role"] else plain(row["label"])
