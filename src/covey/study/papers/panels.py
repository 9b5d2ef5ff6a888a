"""Small multiples as inline SVG: a metric over a sweep, and ours beside the paper's for a table.

Colours are classes of the page's style sheet, as in `covey.study.report.figures`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from covey.study.render.markup import Html, join, tag
from covey.study.report.data import Stat
from covey.study.report.figures import COLOURS, Axis, picture, ruler, ticks, words

WIDTH, HEIGHT = 380.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, WIDTH - 70, 12.0, HEIGHT - 40  # behind the end stand the names of floor and ceiling
MANY = 30  # dots of a line; beyond they are small
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


def logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM


def panel(
    title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float], even: bool = False
) -> Html:
    """A line for each method with bars of spread; the paper's points hollow and dashed; floor and ceiling across.

    `even`: a value has the same width wherever it stands, as a round has.
    """
    xs = sorted({dot.x for one in series for dot in one.dots})
    x = Axis(xs[0], xs[-1], LEFT + 10, RIGHT - 10, log=logarithmic(xs) and not even) if xs else Axis(0, 1, LEFT, RIGHT)
    low, high = _range([*_heights(series), *marks.values()])
    y = Axis(low, high, BOTTOM, TOP)
    parts = [_grid(y, low, high), *_values(x, xs, sweep)]
    parts += [*_levels(marks, y), *(_line(one, x, y, sweep) for one in series)]
    return picture(WIDTH, HEIGHT, _told(title, metric, sweep, series, marks), *parts, kind="hover")


def _heights(series: Sequence[Series]) -> list[float]:
    out = []
    for dot in (dot for one in series for dot in one.dots):
        around = dot.stat.spread or 0.0
        out += [dot.stat.mean - around, dot.stat.mean + around, dot.paper]
    return [v for v in out if not math.isnan(v)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From 0, unless all are far from it and close to each other."""
    most, least = max(values, default=1.0), min(values, default=0.0)
    room = (most - least) * 0.12 or abs(most) * 0.1 or 1.0
    near = least > 0.5 * most
    return (least - room if near else min(least, 0.0)), most + room


def between(low: float, high: float, many: int) -> list[float]:
    """Round numbers from `low` to `high`."""
    _, step = [*ticks(high - low, many), high - low][:2]
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _grid(y: Axis, low: float, high: float) -> Html:
    rows = (
        join(ruler(LEFT, y(t), RIGHT, y(t), "grid"), words(LEFT - 5, y(t) + 4, f"{t:.4g}", "end", "tick"))
        for t in between(low, high, 4)
    )
    return join(*rows)


def _values(x: Axis, xs: Sequence[float], sweep: str) -> list[Html]:
    """Each value that was run has its mark; one too close to the last has no number."""
    out, free = [], -math.inf
    for value in xs:
        out.append(ruler(x(value), BOTTOM, x(value), BOTTOM + 4, "mark solid"))
        half = 3.2 * len(f"{value:g}")
        if x(value) - half > free:
            out.append(words(x(value), BOTTOM + 16, f"{value:g}", "middle", "tick"))
            free = x(value) + half + 4
    scale = " (logarithmic)" if x.log else ""
    return [*out, words((LEFT + RIGHT) / 2, HEIGHT - 6, f"{sweep}{scale}", "middle", "tick")]


def _levels(marks: Mapping[str, float], y: Axis) -> list[Html]:
    """Lines across, each with its name behind the end; names keep their distance, from the lowest up."""
    out, free = [], HEIGHT - 20
    for name, value in sorted(marks.items(), key=lambda mark: mark[1]):
        out.append(ruler(LEFT, y(value), RIGHT, y(value), "mark"))
        at = min(y(value) + 1, free - 11)
        who, _, what = name.rpartition(" (")
        out.append(words(RIGHT + 6, at, who if len(who) <= 11 else who[:10] + "…", kind="note"))
        out.append(words(RIGHT + 6, at + 11, what.rstrip(")"), kind="note"))
        free = at - 12
    return out


def _line(one: Series, x: Axis, y: Axis, sweep: str) -> Html:
    kind = f"c{one.colour % COLOURS}"
    twice = " twice" if one.colour >= COLOURS else ""
    ours = [dot for dot in one.dots if not math.isnan(dot.stat.mean)]
    paper = [dot for dot in one.dots if not math.isnan(dot.paper)]
    way = lambda pairs: " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in pairs)
    parts = [tag("polyline", points=way((d.x, d.paper) for d in paper), class_=f"curve dashed thin {kind}")]
    for dot in paper:
        why = f" (cannot be: {dot.impossible})" if dot.impossible else ""
        told = f"{one.name}, {sweep}={dot.x:g}, the paper: {dot.paper:.4f}{why}"
        cross = [words(x(dot.x), y(dot.paper) - 6, "✗", "middle", "cross")] if dot.impossible else []
        ring = tag("circle", cx=x(dot.x), cy=y(dot.paper), r=3.5, class_=f"ring {kind}", data_t=told)
        parts += [ring, *cross]
    for run in _unbroken(one.dots):
        parts.append(tag("polyline", points=way((d.x, d.stat.mean) for d in run), class_=f"curve {kind}{twice}"))
    size = 3 if len(ours) <= MANY else 1.5
    for dot in ours:
        parts.append(_spread(x(dot.x), dot.stat, y, kind))
        told = f"{one.name}, {sweep}={dot.x:g}: {dot.stat}"
        parts.append(tag("circle", cx=x(dot.x), cy=y(dot.stat.mean), r=size, class_=f"dot {kind}", data_t=told))
    return join(*parts)


def _unbroken(dots: Sequence[Dot]) -> list[list[Dot]]:
    """The line stops where runs failed; what was not run at all is passed over."""
    out: list[list[Dot]] = [[]]
    for dot in dots:
        if dot.failed:
            out.append([])
        elif not math.isnan(dot.stat.mean):
            out[-1].append(dot)
    return [run for run in out if run]


def _spread(at: float, stat: Stat, y: Axis, kind: str) -> Html:
    """A bar with ends."""
    if not stat.spread:
        return Html("")
    top, bottom = y(stat.mean + stat.spread), y(stat.mean - stat.spread)
    ends = ((at, top, at, bottom), (at - 3, top, at + 3, top), (at - 3, bottom, at + 3, bottom))
    return join(*(ruler(*end, f"whisker {kind}") for end in ends))


def _told(title: str, metric: str, sweep: str, series: Sequence[Series], marks: Mapping[str, float]) -> str:
    """The panel in words, for those who do not see it."""
    out = []
    for one in series:
        ours = [(dot.x, dot.stat.mean) for dot in one.dots if not math.isnan(dot.stat.mean)]
        paper = [(dot.x, dot.paper) for dot in one.dots if not math.isnan(dot.paper)]
        out += [
            f"{name} {_course(way, sweep)}" for name, way in ((one.name, ours), (f"{one.name}, paper,", paper)) if way
        ]
    out += [f"{name} {value:.4f}" for name, value in marks.items()]
    return f"{title}, {metric} over {sweep}: {'; '.join(out) or 'no figures'}"


def _course(way: Sequence[tuple[float, float]], sweep: str) -> str:
    (x1, y1), (x2, y2) = way[0], way[-1]
    return f"{y1:.4f} at {x1:g}" + (f", {y2:.4f} at {x2:g}" if len(way) > 1 else "")


def beside(title: str, metric: str, series: Sequence[Series]) -> Html:
    """Of a table: ours with its seeds and spread, and the paper's hollow, a line for each method."""
    left, pitch = 124.0, 21.0
    height = pitch * len(series) + 30
    low, high = _range(_heights(series))
    x = Axis(low, high, left, WIDTH - 12)
    shown = between(low, high, 5)
    parts = [ruler(x(t), 4, x(t), height - 22, "grid") for t in shown]
    parts += [words(x(t), height - 8, f"{t:.4g}", "middle", "tick") for t in shown]
    told = []
    for i, one in enumerate(series):
        parts.append(_beside(one, x, 4 + pitch * (i + 0.5), left))
        paper = "" if math.isnan(one.dots[0].paper) else f", paper {one.dots[0].paper:.4f}"
        told.append(f"{one.name} {one.dots[0].stat}{paper}")
    return picture(WIDTH, height, f"{title}, {metric}: {'; '.join(told)}", *parts, kind="hover")


def _beside(one: Series, x: Axis, y: float, left: float) -> Html:
    dot, kind = one.dots[0], f"c{one.colour % COLOURS}"
    short = one.name if len(one.name) <= 17 else one.name[:16] + "…"
    parts = [words(left - 8, y + 4, short, "end")]
    if not math.isnan(dot.paper):
        why = f" (cannot be: {dot.impossible})" if dot.impossible else ""
        told = f"{one.name}, the paper: {dot.paper:.4f}{why}"
        parts.append(tag("circle", cx=x(dot.paper), cy=y, r=5, class_="ring paper", data_t=told))
        if dot.impossible:
            parts.append(words(x(dot.paper), y + 4, "✗", "middle", "cross"))
    if dot.failed:
        parts.append(words(left + 4, y + 4, "failed", kind="fail"))
    for value in dot.stat.values:
        parts.append(tag("circle", cx=x(value), cy=y, r=2, class_=f"dot seed {kind}"))
    if dot.stat.spread:
        parts.append(
            ruler(x(dot.stat.mean - dot.stat.spread), y, x(dot.stat.mean + dot.stat.spread), y, f"spread {kind}")
        )
    if not math.isnan(dot.stat.mean):
        told = f"{one.name}: {dot.stat}"
        parts.append(tag("circle", cx=x(dot.stat.mean), cy=y, r=4, class_=f"dot {kind}", data_t=told))
    return join(*parts)
