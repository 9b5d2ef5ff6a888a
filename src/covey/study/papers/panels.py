"""A sweep as a picture: a metric over the values that were run, ours and the paper's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from covey.study.render.charts import heights
from covey.study.render.markup import Html, join
from covey.study.render.svg import (
    COLOURS,
    Axis,
    Frame,
    between,
    colour,
    cross,
    dot,
    extent,
    ruler,
    way,
    whisker,
)
from covey.study.render.units import Stat, fixed, tick

FRAME = Frame(380, 230, left=44, right=70, top=12, bottom=40)
LOG_FROM = 30.0  # times between the least and the most: then the axis is logarithmic


class Dot(NamedTuple):
    x: float
    stat: Stat  # ours
    paper: float  # not a number where it has none
    impossible: str = ""  # why the paper's cannot be
    failed: bool = False


class Series(NamedTuple):
    name: str
    dots: Sequence[Dot]
    colour: int

    @property
    def ours(self) -> list[tuple[float, float]]:
        """What was run and came through, as x and mean."""
        return [(d.x, d.stat.mean) for d in self.dots if not math.isnan(d.stat.mean)]

    @property
    def paper(self) -> list[tuple[float, float]]:
        return [(d.x, d.paper) for d in self.dots if not math.isnan(d.paper)]


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def panel(
    title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float]
) -> Html:
    """A line for each method with bars of spread; the paper's points are hollow and dashed.

    `marks` are floor and ceiling, drawn across.
    """
    xs = sorted({dot.x for one in series for dot in one.dots})
    ends, inset = ((xs[0], xs[-1]), 10.0) if xs else ((0.0, 1.0), 0.0)
    x = FRAME.across(*ends, log=logarithmic(xs), inset=inset)
    low, high = extent([*_heights(series), *marks.values()])
    y = FRAME.up(low, high)
    runs = (ruler(x(v), FRAME.base, x(v), FRAME.base + 4, "mark solid") for v in xs)
    parts = [FRAME.rows(y, between(low, high, 4), tick), *runs, FRAME.numbers(x, xs, "{:g}".format)]
    parts += [FRAME.below(f"{sweep}{' (logarithmic)' if x.log else ''}"), FRAME.marks(y, marks)]
    told = _told(series, marks) or "no figures"
    lines = (_line(one, x, y, sweep) for one in series)
    return FRAME.picture(f"{title}, {metric} over {sweep}: {told}", *parts, *lines)


def _heights(series: Sequence[Series]) -> Iterable[float]:
    for one in series:
        for spot in one.dots:
            yield from (*heights(spot.stat), spot.paper)


def _line(one: Series, x: Axis, y: Axis, sweep: str) -> Html:
    """The paper's points as rings, then ours with their spread."""
    kind, twice = colour(one.colour), " twice" if one.colour >= COLOURS else ""
    parts = [way(((x(a), y(b)) for a, b in one.paper), f"curve dashed thin {kind}")]
    for spot in one.dots:
        if not math.isnan(spot.paper):
            why = f" (cannot be: {spot.impossible})" if spot.impossible else ""
            told = f"{one.name}, {sweep}={spot.x:g}, the paper: {fixed(spot.paper)}{why}"
            parts.append(dot(x(spot.x), y(spot.paper), 3.5, f"ring {kind}", told))
            parts += [cross(x(spot.x), y(spot.paper) - 6)] if spot.impossible else []
    for run in _unbroken(one.dots):
        parts.append(way(((x(d.x), y(d.stat.mean)) for d in run), f"curve {kind}{twice}"))
    for spot in one.dots:
        if not math.isnan(spot.stat.mean):
            told = f"{one.name}, {sweep}={spot.x:g}: {spot.stat}"
            parts.append(whisker(x(spot.x), spot.stat, y, kind))
            parts.append(dot(x(spot.x), y(spot.stat.mean), 3, f"dot {kind}", told))
    return join(*parts)


def _unbroken(dots: Sequence[Dot]) -> list[list[Dot]]:
    """The line stops where runs failed; what was not run at all is passed over."""
    out: list[list[Dot]] = [[]]
    for spot in dots:
        if spot.failed:
            out.append([])
        elif not math.isnan(spot.stat.mean):
            out[-1].append(spot)
    return [run for run in out if run]


def _told(series: Sequence[Series], marks: Mapping[str, float]) -> str:
    """The panel in words, for those who do not see it."""
    out = []
    for one in series:
        ways = ((one.name, one.ours), (f"{one.name}, paper,", one.paper))
        out += [f"{name} {_course(points)}" for name, points in ways if points]
    return "; ".join([*out, *(f"{name} {fixed(value)}" for name, value in marks.items())])


def _course(points: Sequence[tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = points[0], points[-1]
    return f"{y1:.4f} at {x1:g}" + (f", {y2:.4f} at {x2:g}" if len(points) > 1 else "")
