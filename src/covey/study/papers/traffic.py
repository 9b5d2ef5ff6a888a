"""The metered bytes of a record as a table: what a client sends and receives."""

from collections.abc import Sequence

from covey.study.render.units import size

from .formatting import Cell, Record, Row

HEAD = ("", "on", "rounds", "up, a round", "down, a round", "up, in all", "down, in all", "both, in all")
SAID = "Of one client, the mean over all clients and rounds of the first seed; measuring is not counted."


def traffic(record: Record) -> list[list[str]]:
    """A line for each row and column whose clients sent anything."""
    pairs = [(row, column["label"]) for column in record["columns"] for row in record["rows"]]
    return [_line(row, label, row["cells"][label]) for row, label in pairs if _metered(row["cells"].get(label))]


def _metered(cell: Cell | None) -> bool:
    return cell is not None and bool(cell.get("lasted")) and bool(cell["up_bytes"] or cell["down_bytes"])


def _line(row: Row, column: str, cell: Cell) -> list[str]:
    up, down = (cell[key] / cell["users"] for key in ("up_bytes", "down_bytes"))
    each: Sequence[float] = (up / cell["lasted"], down / cell["lasted"], up, down, up + down)
    return [row["label"], column, f"{cell['lasted']:,}", *map(size, each)]
