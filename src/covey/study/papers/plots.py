"""The pictures of a record: figures beside the paper's, metrics over rounds, and sweeps."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from covey.study.render import svg
from covey.study.render.charts import Entry, Line, beside, curves, heights
from covey.study.render.charts import theirs as paper_of
from covey.study.render.markup import Child, Html, aside, join, legend, tag
from covey.study.render.units import Point, fixed, plain, tick

from .cells import Column, Record, panels, stat, theirs
from .notes import Marks

FRAME = svg.Frame(380, 230, left=44, right=70, top=12, bottom=40)
LOG_FROM = 30.0  # ratio of the largest to the smallest value from which the axis is logarithmic
Series = Sequence[Entry]  # the figures of one method


def _entries(record: Record, column: Column, metric: str, marks: Marks) -> list[Entry]:
    out = []
    for i, row in enumerate(record["rows"]):
        cell, note = row["cells"].get(column["label"]), marks.get((row["label"], column["label"]))
        failed = cell is not None and bool(cell["errors"]) and not cell["mean"]
        paper, why = theirs(cell, metric), note.text if note else ""
        x = math.nan if column["x"] is None else column["x"]
        out.append(Entry(plain(row["label"]), stat(cell, metric), i, paper, why, failed, x))
    return out


def pictures(record: Record, marks: Marks) -> Html:
    """Draw a small picture for each column and metric of a table."""
    shown = []
    for column in record["columns"]:
        for metric in record["metrics"]:
            drawn = beside(plain(column["label"]), metric, _entries(record, column, metric, marks))
            shown.append(_small(f"{column['label']} · {metric}", drawn))
    return _plot(None, shown, aside(_key(record, "Hollow: the paper.")))


def courses(record: Record, caption: str) -> Html | None:
    """Draw metrics over the rounds, with a picture for each column and metric."""
    shown, keys = [], dict[str, int]()
    for column in record["columns"]:
        for name in record.get("course", ()):
            lines = []
            for i, row in enumerate(record["rows"]):
                course = row["cells"].get(column["label"], {}).get("course") or {}
                found = zip(course.get("rounds", ()), course.get("figures", {}).get(name, ()))
                # The mean over the seeds, or an extra metric of the first seed.
                means = ((at, of[0] if "." in name else sum(of) / len(of)) for at, of in found)
                if points := [Point(at, v, v, v) for at, v in means]:
                    lines.append(Line(plain(row["label"]), points, colour=i))
            if lines:
                keys |= {line.name: line.colour for line in lines}
                drawn = curves(f"{plain(column['label'])}, {name}", lines, {})
                shown.append(_small(f"{column['label']} · {name}", drawn))
    return _plot(keys, shown, aside(caption)) if shown else None


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
    for name, every in panels(record).items():
        columns = [at for at in every if at["x"] is not None and math.isfinite(at["x"])]
        for metric in record["metrics"] if columns else ():
            series, levels = _series(record, columns, metric, marks)
            keys |= {one[0].name: one[0].colour for one in series}
            drawn = panel(plain(name), metric, sweep, series, levels)
            shown.append(_small(f"{name} · {metric}", drawn))
    return _plot(keys, shown, join(aside(_key(record, "Hollow and dashed: the paper.")), claims))


def _series(
    record: Record, columns: Iterable[Column], metric: str, marks: Marks
) -> tuple[list[Series], dict[str, float]]:
    """Return the lines of the methods, and floors and ceilings with one value as levels."""
    series, levels = list[Series](), dict[str, float]()
    across = sorted(columns, key=lambda column: column["x"])
    lines = zip(*(_entries(record, column, metric, marks) for column in across))
    for row, dots in zip(record["rows"], lines):
        means = [dot.stat.mean for dot in dots if not math.isnan(dot.stat.mean)]
        if row["role"] in ("floor", "ceiling") and means and len(set(means)) == 1:
            levels[f"{plain(row['label'])} ({row['role']})"] = means[0]
        elif means or any(not math.isnan(dot.paper) for dot in dots):
            series.append(dots)
    return series, levels


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def panel(
    title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float]
) -> Html:
    """Draw each method with its spread, the paper hollow; `marks` are floors and ceilings."""
    dots = [dot for one in series for dot in one]
    xs = sorted({dot.x for dot in dots})
    ends, inset = ((xs[0], xs[-1]), 10.0) if xs else ((0.0, 1.0), 0.0)
    x = FRAME.across(*ends, log=logarithmic(xs), inset=inset)
    levels = (level for dot in dots for level in (*heights(dot.stat), dot.paper))
    low, high = svg.extent([*levels, *marks.values()])
    y = FRAME.up(low, high)
    runs = (svg.ruler(x(v), FRAME.base, x(v), FRAME.base + 4, "mark solid") for v in xs)
    parts = [FRAME.rows(y, svg.between(low, high, 4), tick), *runs]
    parts += [FRAME.numbers(x, xs, "{:g}".format)]
    parts += [FRAME.below(f"{sweep}{' (logarithmic)' if x.log else ''}"), FRAME.marks(y, marks)]
    text = _described(series, marks) or "no figures"
    lines = (_line(one, x, y, sweep) for one in series)
    return FRAME.picture(f"{title}, {metric} over {sweep}: {text}", *parts, *lines)


def _line(one: Series, x: svg.Axis, y: svg.Axis, sweep: str) -> Html:
    """Draw the paper's points as rings, then ours with their spread."""
    kind, twice = svg.colour(one[0].colour), " twice" if one[0].colour >= svg.COLOURS else ""
    paper = ((x(spot.x), y(spot.paper)) for spot in one if not math.isnan(spot.paper))
    parts = [svg.way(paper, f"curve dashed thin {kind}")]
    for spot in one:
        if tooltip := paper_of(spot, f"{spot.name}, {sweep}={spot.x:g}, the paper: "):
            parts.append(svg.dot(x(spot.x), y(spot.paper), 3.5, f"ring {kind}", tooltip))
            if spot.impossible:
                parts.append(svg.words(x(spot.x), y(spot.paper) - 6, "✗", "middle", "cross"))
    for run in _unbroken(one):
        parts.append(svg.way(((x(d.x), y(d.stat.mean)) for d in run), f"curve {kind}{twice}"))
    for spot in one:
        if not math.isnan(spot.stat.mean):
            tooltip = f"{spot.name}, {sweep}={spot.x:g}: {spot.stat}"
            parts.append(svg.whisker(x(spot.x), spot.stat, y, kind))
            parts.append(svg.dot(x(spot.x), y(spot.stat.mean), 3, f"dot {kind}", tooltip))
    return join(*parts)


def _unbroken(one: Series) -> list[list[Entry]]:
    """Split a line where runs failed; points that were not run are skipped."""
    drawn = (spot for spot in one if spot.failed or not math.isnan(spot.stat.mean))
    return [list(run) for failed, run in groupby(drawn, lambda spot: spot.failed) if not failed]


def _described(series: Sequence[Series], marks: Mapping[str, float]) -> str:
    """Describe the panel for screen readers: where each line begins and ends."""
    out = []
    for one in series:
        ours = [(spot.x, spot.stat.mean) for spot in one]
        paper = [(spot.x, spot.paper) for spot in one]
        for name, every in ((one[0].name, ours), (f"{one[0].name}, paper,", paper)):
            points = [at for at in every if not math.isnan(at[1])]
            ends = points[:1] + points[1:][-1:]
            out += [f"{name} {', '.join(f'{y:.4f} at {x:g}' for x, y in ends)}"] if ends else []
    return "; ".join([*out, *(f"{name} {fixed(value)}" for name, value in marks.items())])
