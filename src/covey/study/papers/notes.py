"""Texts around a record's table: title, origin, footnotes to cells, and lines below rows."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from covey.core.fixed_point import ARITHMETIC
from covey.study.batch import NOT_RUN
from covey.study.render import units
from covey.study.render.units import NOTHING, fixed, grouped, plain, rounded, span

from .cells import Cell, Record, Row, cells, failure, stat, theirs
from .curves import extra

QUICK = "QUICK: cut down to see that it works. These figures say nothing about the paper."
SELECTED = "At the selected rounds, seed by seed:"
OVER = "Over the rounds. Metrics are means of the seeds; what parts told is"
COURSE_SAID = f"{OVER} from the least to the most of them."
PICTURE_SAID = f"{OVER} of the first."
Marks = Mapping[tuple[str, str], "Note"]  # by row and column


class Note(NamedTuple):
    """A footnote to a cell; those on impossible figures are numbered."""

    row: str
    column: str
    text: str
    number: int = 0

    def __str__(self) -> str:
        return f"{plain(self.row)}, {plain(self.column)}: {self.text}"


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
        seeds = grouped((plain(error["error"]), str(error["seed"])) for error in cell["errors"])
        for why, of in seeds.items():
            text = f"seed{'s' if len(of) > 1 else ''} {', '.join(of)} {failure(why)}"
            out.append(Note(row["label"], label, text))
    return out


def extra_metrics(record: Record) -> list[Note]:
    """Return notes with extra metrics, unless the record has these below its rows."""
    if record.get("told") or record.get("ends"):
        return []
    out: list[Note] = []
    for row, label, cell in cells(record):
        parts = (part for one in cell.get("told", ()) for part in one.values())
        found = grouped((plain(name), value) for part in parts for name, value in part.items())
        if found:
            each = (f"{name} {', '.join(map(rounded, values))}" for name, values in found.items())
            out.append(Note(row["label"], label, "; ".join(each)))
    return out


def title(record: Record) -> str:
    return f"{plain(record['paper'])} {plain(record['table'])}: {plain(record['title'])}"


def origin(record: Record) -> str:
    """Return the commit and the machine of a record in words, and which cells are stale."""
    every = (cell for row in record["rows"] for cell in row["cells"].values())
    errors = {seed["error"] for cell in every for seed in cell["errors"]}
    none = f"no machine: {NOT_RUN if errors <= {NOT_RUN} else 'every run failed'}"
    made = {"commit": record["commit"], "machine": plain(record["machine"]) or none}
    summed = [
        (cell.get("arithmetic", 1), f"{plain(row['label'])}, {plain(at)}")
        for row, at, cell in cells(record)
        if cell["figures"] and "pooled" not in cell.get("config", {})  # these have no sums
    ]
    old = [name for version, name in summed if version < ARITHMETIC]
    which = "all federated rows" if len(old) == len(summed) else "; ".join(old)
    stale = f". {units.STALE}: {which}" if old else ""
    return units.origin(made | {"arithmetic": ARITHMETIC}) + stale


class Line(NamedTuple):
    name: str
    of: Callable[[Cell | None, str], str]  # a cell and a metric


def below(record: Record, row: Row) -> list[Line]:
    """Return the lines below a row; extra metrics are shown seed by seed: means say nothing."""
    label, cells = plain(row["label"]), list(row["cells"].values())

    def lowest(cell: Cell | None, metric: str) -> str:
        values = stat(cell, metric).values
        return fixed(min(values)) if len(values) > 1 else NOTHING

    out = [Line(f"{label}, lowest", lowest)] if row.get("lowest") else []
    for key, when in (("told", ""), ("ends", " in the last round")):
        for name in record.get(key, ()):
            if any(_values(cell, key, name) for cell in cells):
                what = f"{plain(name.partition('.')[2])}{when}"
                out.append(Line(f"{label}, {what}", partial(_extra, key, name)))
    return out


def _values(cell: Cell | None, key: str, name: str) -> list[float]:
    found = [extra(metrics, name) for metrics in cell.get(key, ())] if cell else []
    return [value for value in found if value is not None]


def _extra(key: str, name: str, cell: Cell | None, metric: str) -> str:
    paper = theirs(cell, name)
    beside = "" if math.isnan(paper) else f" (paper {rounded(paper)})"
    return (", ".join(map(rounded, _values(cell, key, name))) or NOTHING) + beside


def some(rounds: Sequence[int], most: int) -> list[int]:
    """Return the places of at most `most` rounds, evenly from the first to the last."""
    last = len(rounds) - 1
    if last <= 0:
        return list(range(len(rounds)))
    return sorted({round(i * last / (most - 1)) for i in range(most)})


def courses(record: Record, most: int) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return metrics over the rounds: for each column and metric its title, rounds and rows."""
    out = []
    for column in record["columns"]:
        for name in record.get("course", ()):
            rows = ((row, row["cells"].get(column["label"]) or {}) for row in record["rows"])
            every = ((row, cell.get("course") or {}) for row, cell in rows)
            have = [(row, course) for row, course in every if name in course.get("figures", {})]
            if not have:
                continue
            rounds, lines = have[0][1]["rounds"], []
            at = some(rounds, most)
            for row, course in have:
                there = [course["figures"][name][i] for i in at if i < len(course["figures"][name])]
                if "." in name:
                    texts = [span(each, rounded) for each in there]
                else:
                    texts = [fixed(sum(each) / len(each)) for each in there]
                missing = [NOTHING] * (len(at) - len(texts))
                lines.append([plain(row["label"]), *texts, *missing])
            heads = [f"round {rounds[i]}" for i in at]
            out.append((f"{plain(name)}, {plain(column['label'])}", heads, lines))
    return out
