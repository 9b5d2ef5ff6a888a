"""What is said of a reproduced table, whatever it is shown in: figures, holes, notes, costs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from covey.study.batch import NOT_RUN
from covey.study.render import units
from covey.study.render.units import NOTHING, Stat, duration, plain, rounded, size, span

Record = Mapping[str, Any]
Cell = Mapping[str, Any]
Column = Mapping[str, Any]
Row = Mapping[str, Any]

QUICK = "QUICK: cut down to see that it works. These figures say nothing about the paper."
COSTS = ("seeds", "rounds", "epochs", "trials", "up", "down", "seconds")
COSTS_SAID = (
    "Rounds: the one that validation selected. Epochs: local ones of a client in total. "
    "Trials: of tuning, 0 is as published. Up and down: of one client in the whole run. "
    "Seconds: of one run."
)
TOLD = "At the selected rounds, seed by seed:"


class Note(NamedTuple):
    """A footnote to a cell; those on impossible figures are numbered."""

    row: str
    column: str
    text: str
    number: int = 0

    def __str__(self) -> str:
        return f"{plain(self.row)}, {plain(self.column)}: {self.text}"


class Cost(NamedTuple):
    """What a row cost in one panel, in the order of COSTS."""

    row: str
    panel: str
    figures: tuple[str, ...]


def stat(cell: Cell | None, metric: str) -> Stat:
    """Ours; not a number where no seed came through."""
    mean = cell["mean"].get(metric) if cell else None
    if cell is None or mean is None:
        return Stat.of(())
    values = tuple(cell["figures"].get(metric, ()))
    return Stat(mean, cell["spread"].get(metric) if len(values) > 1 else None, values)


def theirs(cell: Cell | None, metric: str) -> float:
    """The paper's figure; not a number where it has none."""
    value = cell["paper"].get(metric) if cell else None
    return math.nan if value is None else float(value)


def hole(cell: Cell | None) -> str:
    """Why a cell has no figure of ours."""
    return _failed(plain(cell["errors"][0]["error"])) if cell and cell["errors"] else NOTHING


def _failed(why: str) -> str:
    return why if why == NOT_RUN else f"failed: {why}"


def has_paper(record: Record, column: Column, metric: str) -> bool:
    cells = (row["cells"].get(column["label"]) for row in record["rows"])
    return any(not math.isnan(theirs(cell, metric)) for cell in cells)


Columns = list[Column]


def chunks(record: Record, metrics: Sequence[str], most: int, paper: bool = True) -> list[Columns]:
    """Columns that stand in one table: of one panel in a figure, and so many of our figures wide.

    The paper's take half of that room, as they have no spread.
    """
    out: list[Columns] = []
    room, panel = 0, None
    for column in record["columns"]:
        wide = sum(2 + (paper and has_paper(record, column, metric)) for metric in metrics)
        if wide > room or (record["sweep"] and column["panel"] != panel):
            out.append([])
            room, panel = 2 * most, column["panel"]
        out[-1].append(column)
        room -= wide
    return out


def panels(record: Record) -> dict[str, Columns]:
    out: dict[str, Columns] = {}
    for column in record["columns"]:
        out.setdefault(column["panel"], []).append(column)
    return out


def impossible(record: Record) -> dict[tuple[str, str], Note]:
    """By row and column: what the paper prints there and cannot be."""
    out: dict[tuple[str, str], Note] = {}
    for row, label, cell in _cells(record):
        if cell["impossible"]:
            reasons = "; ".join(plain(reason) for reason in cell["impossible"])
            out[row["label"], label] = Note(row["label"], label, reasons, len(out) + 1)
    return out


def failures(record: Record) -> list[Note]:
    """Every error once for a cell, with its seeds."""
    out = []
    for row, label, cell in _cells(record):
        seeds: dict[str, list[str]] = {}
        for error in cell["errors"]:
            seeds.setdefault(plain(error["error"]), []).append(str(error["seed"]))
        out += [
            Note(
                row["label"],
                label,
                f"seed{'s' if len(of) > 1 else ''} {', '.join(of)} {_failed(why)}",
            )
            for why, of in seeds.items()
        ]
    return out


def told(record: Record) -> list[Note]:
    """What methods' parts say of the selected rounds, such as how many clients shared a model.

    Seed by seed; chosen numbers stand below the rows instead.
    """
    if record.get("told") or record.get("ends"):
        return []
    out: list[Note] = []
    for row, label, cell in _cells(record):
        said: dict[str, list[float]] = {}
        for one in cell.get("told", ()):
            for part in one.values():
                for name, value in part.items():
                    said.setdefault(plain(name), []).append(value)
        if said:
            each = (f"{name} {', '.join(map(rounded, values))}" for name, values in said.items())
            out.append(Note(row["label"], label, "; ".join(each)))
    return out


def _cells(record: Record) -> Iterable[tuple[Row, str, Cell]]:
    for row in record["rows"]:
        for column in record["columns"]:
            if cell := row["cells"].get(column["label"]):
                yield row, column["label"], cell


def costs(record: Record) -> list[Cost]:
    """One line for a row and a panel: of a sweep, from the least to the most."""
    out = []
    for panel, columns in panels(record).items():
        for row in record["rows"]:
            if cells := [cell for column in columns if (cell := row["cells"].get(column["label"]))]:
                out.append(Cost(row["label"], panel, _cost(cells)))
    return out


def _cost(cells: Sequence[Cell]) -> tuple[str, ...]:
    seeds = list(dict.fromkeys(_seeds(cell) for cell in cells))
    done = [cell for cell in cells if cell["mean"]]  # what failed has cost nothing that is known
    return (
        seeds[0] if len(seeds) == 1 else "differ",
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


def _seeds(cell: Cell) -> str:
    failed = {error["seed"] for error in cell["errors"]}
    wanted = len({*cell["seeds"], *failed})
    return f"{wanted - len(failed)} of {wanted}" if failed else str(wanted)


def title(record: Record) -> str:
    return f"{plain(record['paper'])} {plain(record['table'])}: {plain(record['title'])}"


def origin(record: Record) -> str:
    """Where the figures are from, after the command."""
    machine = plain(record["machine"]) or _no_machine(record)
    return units.origin({"commit": record["commit"], "machine": machine})


def _no_machine(record: Record) -> str:
    cells = [cell for row in record["rows"] for cell in row["cells"].values()]
    errors = {seed["error"] for cell in cells for seed in cell["errors"]}
    return f"no machine: {NOT_RUN if errors <= {NOT_RUN} else 'every run failed'}"


def by_role(row: Row) -> str:
    return f"{plain(row['label'])} ({row['role']})" if row["role"] else plain(row["label"])
