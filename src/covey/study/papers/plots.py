"""The pictures of a record: figures beside the paper's, metrics over rounds, and sweeps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from covey.study.render import svg
from covey.study.render.charts import Entry, Line, beside, curves, heights
from covey.study.render.markup import Child, Html, aside, join, legend, tag
from covey.study.render.units import Point, Stat, fixed, plain, tick

from .cells import Column, Record, Row, stat, theirs
from .notes import Marks

FRAME = svg.Frame(380, 230, left=44, right=70, top=12, bottom=40)
LOG_FROM = 30.0  # ratio of the largest to the smallest value from which the axis is logarithmic


class Dot(NamedTuple):
    x: float
    stat: Stat  # ours
    paper: float  # NaN if the paper gives no figure
    impossible: str = ""  # why the paper's figure is impossible
    failed: bool = False


class Series(NamedTuple):
    name: str
    dots: Sequence[Dot]
    colour: int

    @property
    def ours(self) -> list[tuple[float, float]]:
        """The points that did not fail, as x and mean."""
        return [(d.x, d.stat.mean) for d in self.dots if not math.isnan(d.stat.mean)]

    @property
    def paper(self) -> list[tuple[float, float]]:
        return [(d.x, d.paper) for d in self.dots if not math.isnan(d.paper)]


def _dot(row: Row, column: Column, metric: str, marks: Marks) -> Dot:
    cell, note = row["cells"].get(column["label"]), marks.get((row["label"], column["label"]))
    x = math.nan if column["x"] is None else column["x"]
    failed = cell is not None and bool(cell["errors"]) and not cell["mean"]
    return Dot(x, stat(cell, metric), theirs(cell, metric), note.text if note else "", failed)


def pictures(record: Record, marks: Marks) -> Html:
    """Draw a small picture for each column and metric of a table."""
    shown = []
    for column in record["columns"]:
        for metric in record["metrics"]:
            rows = []
            for i, row in enumerate(record["rows"]):
                _, ours, paper, why, failed = _dot(row, column, metric, marks)
                rows.append(Entry(plain(row["label"]), ours, i, paper, why, failed))
            drawn = beside(plain(column["label"]), metric, rows)
            shown.append(_small(f"{column['label']} · {metric}", drawn))
    return _plot(None, shown, aside(_key(record, "Hollow: the paper.")))


def courses(record: Record, caption: str) -> Html | None:
    """Draw metrics over the rounds, with a picture for each column and metric."""
    shown, keys = [], dict[str, int]()
    for column in record["columns"]:
        for name in record.get("course", ()):
            every = [_course(row, i, column, name) for i, row in enumerate(record["rows"])]
            if lines := [line for line in every if line.points]:
                keys |= {line.name: line.colour for line in lines}
                drawn = curves(f"{plain(column['label'])}, {name}", lines, {})
                shown.append(_small(f"{column['label']} · {name}", drawn))
    return _plot(keys, shown, aside(caption)) if shown else None


def _course(row: Row, colour: int, column: Column, name: str) -> Line:
    """Return the mean over the seeds, or an extra metric of the first seed."""
    course = row["cells"].get(column["label"], {}).get("course") or {"rounds": [], "figures": {}}
    found = zip(course["rounds"], course["figures"].get(name, ()))
    values = ((at, each[0] if "." in name else sum(each) / len(each)) for at, each in found)
    return Line(plain(row["label"]), [Point(at, v, v, v) for at, v in values], colour=colour)


def _small(name: str, drawn: Html) -> Html:
    return tag("div", tag("h4", name), drawn)


def _plot(keys: dict[str, int] | None, shown: Sequence[Html], caption: Child) -> Html:
    """Return pictures below their legend, two or four in twos, others in threes if they fit."""
    grid = tag("div", *shown, class_="small even" if len(shown) in (2, 4) else "small")
    names = None if keys is None else legend(keys.items())
    return tag("figure", names, grid, tag("figcaption", caption), class_="plot")


def _key(record: Record, paper: str) -> str:
    cells = [cell for row in record["rows"] for cell in row["cells"].values()]
    several = any(len(cell["seeds"]) > 1 for cell in cells)
    beside = any(metric in cell["paper"] for cell in cells for metric in record["metrics"])
    lines = ["Bars are one standard deviation over seeds."] if several else []
    lines += [paper] if beside else []
    return " ".join([*lines, "Each picture has its own axis; not all start at 0."])


def sweeps(record: Record, marks: Marks, claims: Child) -> Html:
    """Draw a panel for each dataset and metric of a sweep, with the claims below."""
    sweep, shown, keys = plain(record["sweep"]["label"]), [], dict[str, int]()
    found: dict[str, list[Column]] = {}
    for column in record["columns"]:
        if column["x"] is not None and math.isfinite(column["x"]):
            found.setdefault(column["panel"], []).append(column)
    for name, columns in found.items():
        for metric in record["metrics"]:
            series, levels = _series(record, columns, metric, marks)
            keys |= {one.name: one.colour for one in series}
            drawn = panel(plain(name), metric, sweep, series, levels)
            shown.append(_small(f"{name} · {metric}", drawn))
    return _plot(keys, shown, join(aside(_key(record, "Hollow and dashed: the paper.")), claims))


def _series(
    record: Record, columns: Iterable[Column], metric: str, marks: Marks
) -> tuple[list[Series], dict[str, float]]:
    """Return the lines of the methods, and floors and ceilings with one value as levels."""
    series, levels = [], dict[str, float]()
    for i, row in enumerate(record["rows"]):
        across = sorted(columns, key=lambda column: column["x"])
        dots = [_dot(row, column, metric, marks) for column in across]
        means = [dot.stat.mean for dot in dots if not math.isnan(dot.stat.mean)]
        if row["role"] in ("floor", "ceiling") and means and len(set(means)) == 1:
            levels[f"{plain(row['label'])} ({row['role']})"] = means[0]
        elif means or any(not math.isnan(dot.paper) for dot in dots):
            series.append(Series(plain(row["label"]), dots, i))
    return series, levels


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def panel(
    title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float]
) -> Html:
    """Draw a line for each method with bars of spread; the paper's points are hollow and dashed.

    `sweep` names the horizontal axis; `marks` are floor and ceiling, drawn as horizontal lines.
    """
    dots = [dot for one in series for dot in one.dots]
    xs = sorted({dot.x for dot in dots})
    ends, inset = ((xs[0], xs[-1]), 10.0) if xs else ((0.0, 1.0), 0.0)
    x = FRAME.across(*ends, log=logarithmic(xs), inset=inset)
    levels = (level for dot in dots for level in (*heights(dot.stat), dot.paper))
    low, high = svg.extent([*levels, *marks.values()])
    y = FRAME.up(low, high)
    runs = (svg.ruler(x(v), FRAME.base, x(v), FRAME.base + 4, "mark solid") for v in xs)
    parts = [
        FRAME.rows(y, svg.between(low, high, 4), tick),
        *runs,
        FRAME.numbers(x, xs, "{:g}".format),
    ]
    parts += [FRAME.below(f"{sweep}{' (logarithmic)' if x.log else ''}"), FRAME.marks(y, marks)]
    text = _described(series, marks) or "no figures"
    lines = (_line(one, x, y, sweep) for one in series)
    return FRAME.picture(f"{title}, {metric} over {sweep}: {text}", *parts, *lines)


def _line(one: Series, x: svg.Axis, y: svg.Axis, sweep: str) -> Html:
    """Draw the paper's points as rings, then ours with their spread."""
    kind, twice = svg.colour(one.colour), " twice" if one.colour >= svg.COLOURS else ""
    parts = [svg.way(((x(a), y(b)) for a, b in one.paper), f"curve dashed thin {kind}")]
    for spot in one.dots:
        if not math.isnan(spot.paper):
            why = f" (impossible: {spot.impossible})" if spot.impossible else ""
            tooltip = f"{one.name}, {sweep}={spot.x:g}, the paper: {fixed(spot.paper)}{why}"
            parts.append(svg.dot(x(spot.x), y(spot.paper), 3.5, f"ring {kind}", tooltip))
            if spot.impossible:
                parts.append(svg.words(x(spot.x), y(spot.paper) - 6, "✗", "middle", "cross"))
    for run in _unbroken(one.dots):
        parts.append(svg.way(((x(d.x), y(d.stat.mean)) for d in run), f"curve {kind}{twice}"))
    for spot in one.dots:
        if not math.isnan(spot.stat.mean):
            tooltip = f"{one.name}, {sweep}={spot.x:g}: {spot.stat}"
            parts.append(svg.whisker(x(spot.x), spot.stat, y, kind))
            parts.append(svg.dot(x(spot.x), y(spot.stat.mean), 3, f"dot {kind}", tooltip))
    return join(*parts)


def _unbroken(dots: Sequence[Dot]) -> list[list[Dot]]:
    """Split a line where runs failed; points that were not run are skipped."""
    out: list[list[Dot]] = [[]]
    for spot in dots:
        if spot.failed:
            out.append([])
        elif not math.isnan(spot.stat.mean):
            out[-1].append(spot)
    return [run for run in out if run]


def _described(series: Sequence[Series], marks: Mapping[str, float]) -> str:
    """Describe the panel for screen readers: where each line begins and ends."""
    out = []
    for one in series:
        for name, points in ((one.name, one.ours), (f"{one.name}, paper,", one.paper)):
            ends = points[:1] + points[1:][-1:]
            out += [f"{name} {', '.join(f'{y:.4f} at {x:g}' for x, y in ends)}"] if ends else []
    return "; ".join([*out, *(f"{name} {fixed(value)}" for name, value in marks.items())])
