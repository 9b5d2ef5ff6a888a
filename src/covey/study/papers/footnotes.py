"""Lines below a row: the lowest of its seeds, and extra metrics of its method."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from covey.study.render.units import NOTHING, fixed, plain, rounded, span

from .cells import Cell, Record, Row, stat, theirs
from .curves import extra

OVER = "Over the rounds. Metrics are means of the seeds; what parts told is"
COURSE_SAID = f"{OVER} from the least to the most of them."
PICTURE_SAID = f"{OVER} of the first."


class Line(NamedTuple):
    name: str
    of: Callable[[Cell | None, str], str]  # a cell and a metric


def below(record: Record, row: Row) -> list[Line]:
    """Return the lines below a row.

    Extra metrics are shown seed by seed: the mean of groups of 8 and 840 clients means nothing.
    """
    label, cells = plain(row["label"]), list(row["cells"].values())
    out = [Line(f"{label}, lowest", _lowest)] if row.get("lowest") else []
    for key, when in (("told", ""), ("ends", " in the last round")):
        for name in record.get(key, ()):
            if any(_values(cell, key, name) for cell in cells):
                what = f"{plain(name.partition('.')[2])}{when}"
                out.append(Line(f"{label}, {what}", partial(_extra, key, name)))
    return out


def _lowest(cell: Cell | None, metric: str) -> str:
    values = stat(cell, metric).values
    return fixed(min(values)) if len(values) > 1 else NOTHING


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
            rounds = have[0][1]["rounds"]
            at = some(rounds, most)
            lines = []
            for row, course in have:
                lines.append([plain(row["label"]), *_at(course["figures"][name], at, name)])
            heads = [f"round {rounds[i]}" for i in at]
            out.append((f"{plain(name)}, {plain(column['label'])}", heads, lines))
    return out


def _at(figures: Sequence[Sequence[float]], at: Sequence[int], name: str) -> list[str]:
    there = [figures[i] for i in at if i < len(figures)]
    if "." in name:
        out = [span(each, rounded) for each in there]
    else:
        out = [fixed(sum(each) / len(each)) for each in there]
    return out + [NOTHING] * (len(at) - len(out))
