"""Texts above and below a record's table: title, origin, and footnotes to its cells."""

from collections.abc import Mapping
from typing import NamedTuple

from covey.core.fixed_point import ARITHMETIC
from covey.study.batch import NOT_RUN
from covey.study.render import units
from covey.study.render.units import plain, rounded

from .cells import Record, cells, failure

QUICK = "QUICK: cut down to see that it works. These figures say nothing about the paper."
SELECTED = "At the selected rounds, seed by seed:"


class Note(NamedTuple):
    """A footnote to a cell; those on impossible figures are numbered."""

    row: str
    column: str
    text: str
    number: int = 0

    def __str__(self) -> str:
        return f"{plain(self.row)}, {plain(self.column)}: {self.text}"


Marks = Mapping[tuple[str, str], Note]  # by row and column


def impossible(record: Record) -> Marks:
    """Return notes on figures of the paper that are impossible."""
    out: dict[tuple[str, str], Note] = {}
    for row, label, cell in cells(record):
        if cell["impossible"]:
            reasons = "; ".join(plain(reason) for reason in cell["impossible"])
            out[row["label"], label] = Note(row["label"], label, reasons, len(out) + 1)
    return out


def failures(record: Record) -> list[Note]:
    """Return a note for each different error of a cell, with its seeds."""
    out = []
    for row, label, cell in cells(record):
        seeds: dict[str, list[str]] = {}
        for error in cell["errors"]:
            seeds.setdefault(plain(error["error"]), []).append(str(error["seed"]))
        for why, of in seeds.items():
            text = f"seed{'s' if len(of) > 1 else ''} {', '.join(of)} {failure(why)}"
            out.append(Note(row["label"], label, text))
    return out


def extra_metrics(record: Record) -> list[Note]:
    """Return notes with extra metrics of the methods at the selected rounds, seed by seed.

    Such a metric is, for example, how many clients shared a model. A record that names some of
    them has these below its rows instead.
    """
    if record.get("told") or record.get("ends"):
        return []
    out: list[Note] = []
    for row, label, cell in cells(record):
        found: dict[str, list[float]] = {}
        for one in cell.get("told", ()):
            for part in one.values():
                for name, value in part.items():
                    found.setdefault(plain(name), []).append(value)
        if found:
            each = (f"{name} {', '.join(map(rounded, values))}" for name, values in found.items())
            out.append(Note(row["label"], label, "; ".join(each)))
    return out


def title(record: Record) -> str:
    return f"{plain(record['paper'])} {plain(record['table'])}: {plain(record['title'])}"


def origin(record: Record) -> str:
    """Return the commit and the machine of a record in words, and which cells are stale."""
    machine = plain(record["machine"]) or _no_machine(record)
    made = {"commit": record["commit"], "machine": machine, "arithmetic": ARITHMETIC}
    return units.origin(made) + _stale(record)


def _stale(record: Record) -> str:
    """A sentence on cells whose sums were made by an older arithmetic; pooled models have none."""
    summed = [
        (row, at, cell) for row, at, cell in cells(record) if "pooled" not in cell.get("config", {})
    ]
    made = [(row, at, cell) for row, at, cell in summed if cell["figures"]]
    old = [(row, at) for row, at, cell in made if cell.get("arithmetic", 1) < ARITHMETIC]
    if not old:
        return ""
    which = "all federated rows"
    if len(old) < len(made):
        which = "; ".join(f"{plain(row['label'])}, {plain(at)}" for row, at in old)
    return f". {units.STALE}: {which}"


def _no_machine(record: Record) -> str:
    every = (cell for row in record["rows"] for cell in row["cells"].values())
    errors = {seed["error"] for cell in every for seed in cell["errors"]}
    return f"no machine: {NOT_RUN if errors <= {NOT_RUN} else 'every run failed'}"
