"""The costs of a record: seeds, rounds, tuning, traffic and time of each row."""

from collections.abc import Sequence
from typing import NamedTuple

from covey.study.render.units import duration, rounded, size, span
from covey.study.render.wording import note

from .cells import Cell, Record, Row, panels

COSTS = ("seeds", "rounds", "epochs", "trials", "up", "down", "seconds")
COSTS_SAID = note("costs")
EACH = ("up, a round", "down, a round", "up, in all", "down, in all", "both, in all")
TRAFFIC = ("", "on", "rounds", *EACH)
MEAN = "Of one client, the mean over all clients and rounds of the first seed"
TRAFFIC_SAID = f"{MEAN}; measuring is not counted."


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
