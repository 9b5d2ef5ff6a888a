"""The cells of a record: our figures, those of the paper, reasons for missing ones, and costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from covey.study.batch import NOT_RUN
from covey.study.render.units import NOTHING, Stat, duration, grouped, plain, rounded, size, span

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Column = Mapping[str, Any]
Row = Mapping[str, Any]
Columns = list[Column]
COSTS = ("seeds", "rounds", "epochs", "trials", "up", "down", "seconds")
EACH = ("up, a round", "down, a round", "up, in all", "down, in all", "both, in all")
TRAFFIC = ("", "on", "rounds", *EACH)
MEAN = "Of one client, the mean over all clients and rounds of the first seed"
TRAFFIC_SAID = f"{MEAN}; measuring is not counted."


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
    return grouped((column["panel"], column) for column in record["columns"])


def cells(record: Record) -> Iterator[tuple[Row, str, Cell]]:
    """Yield the row, the label of the column, and the cell."""
    for row in record["rows"]:
        for column in record["columns"]:
            if cell := row["cells"].get(column["label"]):
                yield row, column["label"], cell


def by_role(row: Row) -> str:
    """Return the label of a row, with its role if it has one."""
    return f"{plain(row['label'])} ({row['role']})" if row["role"] else plain(row["label"])


class Cost(NamedTuple):
    """What a row cost in one panel, in the order of COSTS."""

    row: Row
    panel: str
    figures: tuple[str, ...]


def costs(record: Record) -> list[Cost]:
    """Return a line for each row and panel; a sweep has ranges from the smallest to the largest."""
    out = []
    for panel, columns in panels(record).items():
        for row in record["rows"]:
            if cells := [cell for column in columns if (cell := row["cells"].get(column["label"]))]:
                out.append(Cost(row, panel, cost_of(cells)))
    return out


def cost_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the costs of cells in the order of COSTS."""
    seeds = []
    for cell in cells:
        failed = {error["seed"] for error in cell["errors"]}
        wanted = len({*cell["seeds"], *failed})
        seeds.append(f"{wanted - len(failed)} of {wanted}" if failed else str(wanted))
    done = [cell for cell in cells if cell["mean"]]  # the cost of failed runs is unknown
    return (
        seeds[0] if len(set(seeds)) == 1 else "differ",
        span([n for cell in done for n in cell["rounds"] if n], "{:,}".format),
        span(_each(done, "work"), rounded),
        span(_each(done, "tuned"), str),
        _sent(done, "up_bytes"),
        _sent(done, "down_bytes"),
        span(_each(done, "seconds"), duration),
    )


def _each(cells: Sequence[Cell], key: str) -> list[float]:
    return [cell[key] for cell in cells if cell[key] is not None]


def _sent(cells: Sequence[Cell], key: str) -> str:
    return span([cell[key] / cell["users"] for cell in cells if cell[key]], size)


def traffic(record: Record) -> list[list[str]]:
    """Return a line under TRAFFIC for each row and column whose clients sent anything."""
    out = []
    for label in (column["label"] for column in record["columns"]):
        for row in record["rows"]:
            cell = row["cells"].get(label) or {}
            if cell.get("lasted") and (cell["up_bytes"] or cell["down_bytes"]):
                up, down = (cell[key] / cell["users"] for key in ("up_bytes", "down_bytes"))
                each = (up / cell["lasted"], down / cell["lasted"], up, down, up + down)
                out.append([row["label"], label, f"{cell['lasted']:,}", *map(size, each)])
    return out
