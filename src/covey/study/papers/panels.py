"""The picture of a sweep: a metric over the values that were run, ours and the paper's."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from covey.study.render import svg
from covey.study.render.charts import heights
from covey.study.render.markup import Html, join
from covey.study.render.units import Stat, fixed, tick

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


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def panel(
    title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float]
) -> Html:
    """Draw a line for each method with bars of spread; the paper's points are hollow and dashed.

    Args:
        title: The dataset and protocol.
        metric: The name of the metric.
        sweep: The name of the horizontal axis.
        series: The points of each method.
        marks: Floor and ceiling by name, drawn as horizontal lines.
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
            parts += [svg.cross(x(spot.x), y(spot.paper) - 6)] if spot.impossible else []
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
    """Describe the panel for screen readers."""
    out = []
    for one in series:
        ways = ((one.name, one.ours), (f"{one.name}, paper,", one.paper))
        out += [f"{name} {_course(points)}" for name, points in ways if points]
    return "; ".join([*out, *(f"{name} {fixed(value)}" for name, value in marks.items())])


def _course(points: Sequence[tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = points[0], points[-1]
    return f"{y1:.4f} at {x1:g}" + (f", {y2:.4f} at {x2:g}" if len(points) > 1 else "")
