"""Figures as inline SVG: curves over rounds, figures over seeds, accuracy against traffic, the item map.

Colours are classes of the page's style sheet (c0, c1, ...), so that light, dark and print each have their own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from covey.study.render.markup import Html, join, tag

from .data import Point, Stat
from .run_table import size

WIDTH = 420.0
END = WIDTH - 66  # of what is plotted; the names of floor and ceiling stand behind it
COLOURS = 8
MOST_POINTS = 200  # of one curve; a longer one is thinned


@dataclass(frozen=True)
class Axis:
    """From a value to a place."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(x) if self.log else x for x in (self.low, self.high, max(value, self.low)))
        return self.start + (at - low) / ((high - low) or 1) * (self.end - self.start)


@dataclass(frozen=True)
class Line:
    name: str
    points: Sequence[Point]
    selected: int | None = None  # the round that was chosen
    colour: int = 0


@dataclass(frozen=True)
class Spot:
    """An item on the map."""

    x: float
    y: float
    title: str
    weight: float  # 0 to 1: how popular


def ticks(high: float, many: int = 4) -> list[float]:
    """Round numbers from 0 to at most `high`."""
    if not high > 0 or math.isinf(high):
        return [0.0]
    raw = high / many
    unit = 10 ** math.floor(math.log10(raw))
    step = next((s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= raw * (1 - 1e-9)), 10 * unit)
    return [i * step for i in range(int(high / step + 1e-9) + 1)]


def words(x: float, y: float, what: str, anchor: str = "start", kind: str | None = None) -> Html:
    return tag("text", what, x=x, y=y, text_anchor=anchor, class_=kind)


def ruler(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def picture(width: float, height: float, label: str, *parts: Html, kind: str = "") -> Html:
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=label,
        class_=f"figure {kind}".strip(),
    )


def curves(metric: str, lines: Sequence[Line], marks: Mapping[str, float], least: float = 1e-9) -> Html:
    """A metric over the rounds, with horizontal marks such as the floor; the axis goes up to `least` anyway."""
    height = 260.0
    last = max((p.round for line in lines for p in line.points), default=1)
    top = max([*(p.high for line in lines for p in line.points), *marks.values(), least]) * 1.06
    first = min((p.round for line in lines for p in line.points), default=0)
    x, y = Axis(min(first, last - 1), last, 46, END), Axis(0, top, height - 36, 16)
    parts = [_grid_y(y, top), *_rounds(x, first, last, height)]
    parts += [*_levels(marks, y), *(_curve(line, x, y) for line in lines)]
    return picture(WIDTH, height, f"{metric} over the rounds", *parts, kind="hover")


def spent(what: str, lines: Sequence[Line], say: Callable[[float], str]) -> Html:
    """What each round took; powers of ten where methods differ widely, so that none is a line at the bottom."""
    height = 220.0
    points = [p for line in lines for p in line.points]
    first, last = min(p.round for p in points), max(p.round for p in points)
    top, low = max(p.high for p in points) or 1.0, min((p.low for p in points if p.low > 0), default=1.0)
    x = Axis(min(first, last - 1), last, 52, END)
    if wide := max(p.mean for p in points) > 50 * low:
        low, top = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(top))
        levels = [10.0**k for k in range(round(math.log10(low)), round(math.log10(top)) + 1)]
    else:
        low, top = 0.0, top * 1.1
        levels = ticks(top)
    y = Axis(low, top, height - 36, 16, log=wide)
    grid = (join(ruler(52, y(t), END, y(t), "grid"), words(48, y(t) + 4, say(t), "end", "tick")) for t in levels)
    parts = [*grid, *_rounds(x, first, last, height), *(_curve(line, x, y, say) for line in lines)]
    return picture(WIDTH, height, f"{what}, over the rounds", *parts, kind="hover")


def _levels(marks: Mapping[str, float], y: Axis) -> list[Html]:
    """Lines across, each with its name and what it is behind the end; names keep their distance."""
    out, free = [], -math.inf
    for name, value in sorted(marks.items(), key=lambda mark: -mark[1]):
        if math.isnan(value):
            continue
        out.append(ruler(46, y(value), END, y(value), "mark"))
        free = max(y(value), free)
        who, _, what = name.partition(" (")
        out.append(words(END + 8, free, who if len(who) <= 10 else who[:9] + "…", kind="note"))
        out.append(words(END + 8, free + 11, what.rstrip(")"), kind="note"))
        free += 26
    return out


def _apart(marks: Mapping[str, float], y: Axis) -> list[tuple[str, float]]:
    """Marks from low to high; one that would be written over another shares its line of text."""
    out: list[tuple[str, float]] = []
    for name, value in sorted(marks.items(), key=lambda m: m[1]):
        if math.isnan(value):
            continue
        if out and abs(y(out[-1][1]) - y(value)) < 12:
            out.append(("", value))
            out[-2] = (f"{out[-2][0]}, {name}".strip(", "), out[-2][1])
        else:
            out.append((name, value))
    return out


def _grid_y(y: Axis, top: float) -> Html:
    rows = (
        join(ruler(46, y(t), END, y(t), "grid"), words(41, y(t) + 4, f"{t:.3g}", "end", "tick")) for t in ticks(top)
    )
    return join(*rows)


def _rounds(x: Axis, first: int, last: int, height: float) -> list[Html]:
    marks = dict.fromkeys([first, *(int(t) for t in ticks(last, 5) if t >= first + last / 10), last])
    shown = [t for t in marks if t == last or last - t > (last - first) / 12]
    labels = [words(x(t), height - 20, f"{t:,}", "middle", "tick") for t in shown]
    return [*labels, words(END, height - 4, "round", "end", "tick")]


def _curve(line: Line, x: Axis, y: Axis, say: Callable[[float], str] = "{:.4f}".format) -> Html:
    points, colour = thinned(line.points, line.selected), f"c{line.colour % COLOURS}"
    dash = " dashed" if line.colour >= COLOURS else ""
    at = lambda pairs: " ".join(f"{x(r):.1f},{y(v):.1f}" for r, v in pairs)
    band = [(p.round, p.high) for p in points] + [(p.round, p.low) for p in reversed(points)]
    parts = [tag("polygon", points=at(band), class_=f"band {colour}")] if any(p.high > p.low for p in points) else []
    parts.append(tag("polyline", points=at((p.round, p.mean) for p in points), class_=f"curve {colour}{dash}"))
    few = len(points) <= 12
    for p in points:
        chosen = p.round == line.selected
        kind = f"dot {colour}" + (" chosen" if chosen else "" if few else " faint")
        said = f"{line.name}, round {p.round}: {say(p.mean)}" + (" (selected)" if chosen else "")
        parts.append(tag("circle", cx=x(p.round), cy=y(p.mean), r=5 if chosen else 2.5, class_=kind, data_t=said))
    return join(*parts)


def thinned(points: Sequence[Point], keep: int | None = None) -> list[Point]:
    """At most about MOST_POINTS, with the first, the last and the chosen one."""
    step = -(-len(points) // MOST_POINTS)
    last = len(points) - 1
    return [p for i, p in enumerate(points) if i % max(step, 1) == 0 or i == last or p.round == keep]


def dots(metric: str, rows: Sequence[tuple[str, Stat, int]], marks: Mapping[str, float]) -> Html:
    """A metric of several methods: each seed, the mean and its spread; vertical marks for floor and ceiling."""
    left, right, above, pitch = 118.0, WIDTH - 100, 34.0, 26.0
    height = above + pitch * len(rows) + 24
    known = [stat for _, stat, _ in rows if stat.values]
    top = max([*(max(s.values) for s in known), *(v for v in marks.values() if not math.isnan(v)), 1e-9]) * 1.04
    x = Axis(0, top, left, right)
    bottom = height - 22
    parts = [join(ruler(x(t), above, x(t), bottom, "grid")) for t in ticks(top, 3)]
    parts += [words(x(t), height - 7, f"{t:.3g}", "middle", "tick") for t in ticks(top, 3)]
    for i, (name, value) in enumerate(_apart(marks, Axis(0, top, left / 4, right / 4))):  # words are wider than high
        near_end = x(value) > (left + right) / 2
        parts.append(ruler(x(value), above - 4, x(value), bottom, "mark"))
        parts.append(words(x(value), 13 + 13 * (i % 2), name, "end" if near_end else "start", "note"))
    for i, (name, stat, colour) in enumerate(rows):
        parts.append(_dot_row(name, stat, colour, x, above + pitch * (i + 0.5)))
    return picture(WIDTH, height, f"{metric} on the test, with floor and ceiling", *parts, kind="hover")


def _dot_row(name: str, stat: Stat, colour: int, x: Axis, y: float) -> Html:
    kind = f"c{colour % COLOURS}"
    short = name if len(name) <= 17 else name[:16] + "…"
    parts = [words(110, y + 4, short, "end"), words(WIDTH - 92, y + 4, str(stat), kind="figures")]
    if stat.spread:
        parts.append(ruler(x(stat.mean - stat.spread), y, x(stat.mean + stat.spread), y, f"spread {kind}"))
    for value in stat.values:
        parts.append(tag("circle", cx=x(value), cy=y, r=3, class_=f"dot seed {kind}", data_t=f"{name}: {value:.4f}"))
    if stat.values:
        parts.append(tag("circle", cx=x(stat.mean), cy=y, r=5, class_=f"dot {kind}", data_t=f"{name}: {stat}"))
    return join(*parts)


def price(metric: str, rows: Sequence[tuple[str, float, float, int]], marks: Mapping[str, float]) -> Html:
    """A metric against the bytes that one client uploads in one round, on a scale of powers of ten."""
    height = 260.0
    low = 10.0 ** math.floor(math.log10(min(b for _, b, _, _ in rows)) - 0.05)
    high = 10.0 ** math.ceil(math.log10(max(b for _, b, _, _ in rows)) + 0.05)
    top = max([*(v for _, _, v, _ in rows), *(v for v in marks.values() if not math.isnan(v)), 1e-9]) * 1.08
    x, y = Axis(low, high, 46, END, log=True), Axis(0, top, height - 36, 16)
    parts = [_grid_y(y, top)]
    for k in range(round(math.log10(low)), round(math.log10(high)) + 1):
        anchor = "end" if 10.0**k == high else "middle"
        parts.append(words(x(10.0**k), height - 20, size(10.0**k), anchor, "tick"))
    parts.append(words(END, height - 4, "uploaded by a client in a round", "end", "tick"))
    parts += _levels(marks, y)
    for name, bytes_, value, colour in rows:
        at, said = (x(bytes_), y(value)), f"{name}: {value:.4f}, {size(bytes_)}"
        parts.append(tag("circle", cx=at[0], cy=at[1], r=6, class_=f"dot c{colour % COLOURS}", data_t=said))
    return picture(WIDTH, height, f"{metric} against upload", *parts, kind="hover")


def item_map(name: str, spots: Sequence[Spot]) -> Html:
    """Items where the public table has them; larger where they are more popular."""
    height = 320.0
    across, up = _extent([s.x for s in spots]), _extent([s.y for s in spots])
    x, y = Axis(*across, 10, WIDTH - 10), Axis(*up, height - 10, 10)
    circles = (
        tag("circle", cx=x(s.x), cy=y(s.y), r=1.6 + 4 * math.sqrt(s.weight), class_="dot item", data_t=s.title)
        for s in spots
    )
    return picture(WIDTH, height, f"item map of {name}", *circles, kind="hover map")


def _extent(values: Sequence[float]) -> tuple[float, float]:
    return min(values, default=0.0), max(values, default=1.0)
