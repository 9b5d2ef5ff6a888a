"""The metered bytes of a record as a table: what a client sends and receives."""

from collections.abc import Sequence

from covey.study.render.units import size

from .formatting import Cell, Record, Row

EACH = ("up, a round", "down, a round", "up, in all", "down, in all", "both, in all")
HEAD = ("", "on", "rounds", *EACH)
MEAN = "Of one client, the mean over all clients and rounds of the first seed"
SAID = f"{MEAN}; measuring is not counted."


def traffic(record: Record) -> list[list[str]]:
    """A line for each row and column whose clients sent anything."""
    pairs = [(row, column["label"]) for column in record["columns"] for row in record["rows"]]
    found = ((row, label, row["cells"].get(label)) for row, label in pairs)
    return [_line(row, label, cell) for row, label, cell in found if cell and _metered(cell)]


def _metered(cell: Cell) -> bool:
    return bool(cell.get("lasted")) and bool(cell["up_bytes"] or cell["down_bytes"])


def _line(row: Row, column: str, cell: Cell) -> list[str]:
    up, down = (cell[key] / cell["users"] for key in ("up_bytes", "down_bytes"))
    each: Sequence[float] = (up / cell["lasted"], down / cell["lasted"], up, down, up + down)
    return [row["label"], column, f"{cell['lasted']:,}", *map(size, each)]
