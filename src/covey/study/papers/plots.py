"""The pictures of a record: a table's figures beside the paper's, or a sweep with its claims as the caption."""

import math
from collections.abc import Sequence

from covey.study.render.markup import Child, Html, tag
from covey.study.report.data import Stat
from covey.study.report.sections import legend

from .formatting import Column, Note, Record, Row, plain, stat, theirs
from .panels import Dot, Series, beside, panel


def _dot(row: Row, column: Column, metric: str, marks: dict[tuple[str, str], Note]) -> Dot:
    cell, note = row["cells"].get(column["label"]), marks.get((row["label"], column["label"]))
    x = math.nan if column["x"] is None else column["x"]
    failed = cell is not None and bool(cell["errors"]) and not cell["mean"]
    return Dot(x, stat(cell, metric), theirs(cell, metric), note.text if note else "", failed)


def pictures(record: Record, marks: dict[tuple[str, str], Note]) -> Html:
    """A table's figures, one small picture for each column and metric."""
    shown = []
    for column in record["columns"]:
        for metric in record["metrics"]:
            rows = [
                Series(plain(r["label"]), [_dot(r, column, metric, marks)], i) for i, r in enumerate(record["rows"])
            ]
            name = tag("h4", f"{column['label']} · {metric}")
            shown.append(tag("div", name, beside(plain(column["label"]), metric, rows)))
    told = _key(record, "Hollow: the paper.")
    return tag("figure", _grid(shown), tag("figcaption", told, class_="aside"), class_="plot")


def courses(record: Record, told: str) -> Html | None:
    """Over the rounds: one panel for each column and quantity."""
    shown, keys = [], dict[str, int]()
    for column in record["columns"]:
        for name in record.get("course", ()):
            series = [_course(row, i, column, name) for i, row in enumerate(record["rows"])]
            if have := [one for one in series if one.dots]:
                keys |= {one.name: one.colour for one in have}
                drawn = panel(plain(column["label"]), name, "round", have, {}, even=True)
                shown.append(tag("div", tag("h4", f"{column['label']} · {name}"), drawn))
    caption = tag("figcaption", tag("p", told, class_="aside"))
    return tag("figure", legend(list(keys.items())), _grid(shown), caption, class_="plot") if shown else None


def _course(row: Row, colour: int, column: Column, name: str) -> Series:
    course = row["cells"].get(column["label"], {}).get("course") or {"rounds": [], "figures": {}}
    figures = course["figures"].get(name, [])
    shown = [each[0] if "." in name else sum(each) / len(each) for each in figures]
    means = [Stat(value, None, ()) for value in shown]  # bars at every round would hide the line
    return Series(plain(row["label"]), [Dot(float(n), s, math.nan) for n, s in zip(course["rounds"], means)], colour)


def _key(record: Record, paper: str) -> str:
    """How to read the pictures; only of what is there."""
    cells = [cell for row in record["rows"] for cell in row["cells"].values()]
    said = ["Bars are one standard deviation over seeds."] if any(len(cell["seeds"]) > 1 for cell in cells) else []
    said += [paper] if any(metric in cell["paper"] for cell in cells for metric in record["metrics"]) else []
    return " ".join([*said, "Each picture has its own axis; not all begin at 0."])


def _grid(shown: Sequence[Html]) -> Html:
    """Two or four stand in twos, others in threes, where there is room."""
    return tag("div", *shown, class_="small even" if len(shown) in (2, 4) else "small")


def sweeps(record: Record, marks: dict[tuple[str, str], Note], claims: Child) -> Html:
    """A sweep: one panel for each dataset and metric, the claims below."""
    sweep, shown, keys = plain(record["sweep"]["label"]), [], dict[str, int]()
    found: dict[str, list[Column]] = {}
    for column in record["columns"]:
        if column["x"] is not None and math.isfinite(column["x"]):
            found.setdefault(column["panel"], []).append(column)
    for name, columns in found.items():
        for metric in record["metrics"]:
            series, levels = _series(record, columns, metric, marks)
            keys |= {one.name: one.colour for one in series}
            shown.append(tag("div", tag("h4", f"{name} · {metric}"), panel(plain(name), metric, sweep, series, levels)))
    told = _key(record, "Hollow and dashed: the paper.")
    caption = tag("figcaption", tag("p", told, class_="aside"), claims)
    return tag("figure", legend(list(keys.items())), _grid(shown), caption, class_="plot")


def _series(
    record: Record, columns: Sequence[Column], metric: str, marks: dict[tuple[str, str], Note]
) -> tuple[list[Series], dict[str, float]]:
    """Lines of the methods; floors and ceilings that were run once, or do not move, are levels."""
    series, levels = [], dict[str, float]()
    for i, row in enumerate(record["rows"]):
        dots = [_dot(row, column, metric, marks) for column in sorted(columns, key=lambda column: column["x"])]
        means = [dot.stat.mean for dot in dots if not math.isnan(dot.stat.mean)]
        if row["role"] in ("floor", "ceiling") and means and len(set(means)) == 1:
            levels[f"{plain(row['label'])} ({row['role']})"] = means[0]
        elif means or any(not math.isnan(dot.paper) for dot in dots):
            series.append(Series(plain(row["label"]), dots, i))
    return series, levels
