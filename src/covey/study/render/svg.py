"""Inline SVG: the axes, grids, lines, dots and names of all pictures.

Positions are pixels of the picture, with (0, 0) at its upper left. Colours are classes of the
page's style sheet (c0, c1, ...), so that light, dark and print have their own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .markup import Html, join, tag
from .units import Format, Stat, cut, known

COLOURS = 8
DIGIT = 6.2  # width of a digit at an axis
LINES = 25.0  # height of the two lines that name a mark


@dataclass(frozen=True)
class Axis:
    """Maps a value to a position."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        ends = (self.low, self.high, max(value, self.low))
        low, high, at = (math.log10(x) if self.log else x for x in ends)
        return self.start + (at - low) / ((high - low) or 1) * (self.end - self.start)


@dataclass(frozen=True)
class Frame:
    """The size of a picture, and its margins around the plot for numbers and names."""

    width: float = 420.0
    height: float = 260.0
    left: float = 46.0
    right: float = 70.0
    top: float = 16.0
    bottom: float = 36.0

    @property
    def end(self) -> float:
        """The right edge of the plot."""
        return self.width - self.right

    @property
    def base(self) -> float:
        """The lower edge of the plot."""
        return self.height - self.bottom

    def across(self, low: float, high: float, log: bool = False, inset: float = 0.0) -> Axis:
        return Axis(low, high, self.left + inset, self.end - inset, log)

    def up(self, low: float, high: float, log: bool = False) -> Axis:
        return Axis(low, high, self.base, self.top, log)

    def rows(self, y: Axis, values: Sequence[float], fmt: Format) -> Html:
        """Draw horizontal lines with their values at the left."""
        lines = (ruler(self.left, y(v), self.end, y(v), "grid") for v in values)
        names = (words(self.left - 5, y(v) + 4, fmt(v), "end", "tick") for v in values)
        return join(*lines, *names)

    def columns(self, x: Axis, values: Sequence[float], fmt: Format) -> Html:
        """Draw vertical lines with their values below."""
        lines = (ruler(x(v), self.top, x(v), self.base, "grid") for v in values)
        return join(*lines, self.numbers(x, values, fmt))

    def numbers(self, x: Axis, values: Iterable[float], fmt: Format) -> Html:
        """Write values below the plot; one of two that would touch is left out, never the last."""
        shown: list[float] = []
        for value in (every := list(values)):
            reach = DIGIT * (len(fmt(value)) + 1)
            while value == every[-1] and len(shown) > 1 and x(value) - x(shown[-1]) < reach:
                shown.pop()
            if not shown or x(value) - x(shown[-1]) >= reach:
                shown.append(value)
        return join(*(words(x(v), self.base + 16, fmt(v), "middle", "tick") for v in shown))

    def below(self, what: str) -> Html:
        """Name the horizontal axis."""
        return words(self.end, self.height - 4, what, "end", "tick")

    def marks(self, y: Axis, marks: Mapping[str, float]) -> Html:
        """Draw horizontal lines, each named at the right in two lines, such as "ease (ceiling)"."""
        found = sorted(known(marks).items(), key=lambda mark: mark[1])
        free, out = self.height - LINES / 2, []
        for name, value in found:
            at = min(y(value), free)
            who, _, what = name.rpartition(" (")
            out.append(ruler(self.left, y(value), self.end, y(value), "mark"))
            out.append(words(self.end + 6, at, cut(who, 11), kind="note"))
            out.append(words(self.end + 6, at + 11, what.rstrip(")"), kind="note"))
            free = at - LINES
        return join(*out)

    def picture(self, label: str, *parts: Html, kind: str = "hover") -> Html:
        """Return the picture; `label` describes it for screen readers."""
        box, kind = f"0 0 {self.width:g} {self.height:g}", f"figure {kind}"
        return tag("svg", *parts, viewBox=box, role="img", aria_label=label, class_=kind)


def ticks(high: float, many: int = 4) -> list[float]:
    """Return round numbers from 0 to at most `high`."""
    if not high > 0 or math.isinf(high):
        return [0.0]
    raw = high / many
    unit = 10 ** math.floor(math.log10(raw))
    step = next((s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= raw * (1 - 1e-9)), 10 * unit)
    return [i * step for i in range(int(high / step + 1e-9) + 1)]


def between(low: float, high: float, many: int) -> list[float]:
    """Return round numbers from `low` to `high`."""
    _, step = [*ticks(high - low, many), high - low][:2]
    ends = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(ends[0], ends[1] + 1)]


def extent(values: Iterable[float]) -> tuple[float, float]:
    """Return a range that starts at 0 unless all values are far from 0 and close to each other."""
    there = [value for value in values if not math.isnan(value)]
    most, least = max(there, default=1.0), min(there, default=0.0)
    margin = (most - least) * 0.12 or abs(most) * 0.1 or 1.0
    near = least > 0.5 * most
    return (least - margin if near else min(least, 0.0)), most + margin


def colour(number: int) -> str:
    return f"c{number % COLOURS}"


def words(x: float, y: float, what: str, anchor: str = "start", kind: str | None = None) -> Html:
    return tag("text", what, x=x, y=y, text_anchor=anchor, class_=kind)


def ruler(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def way(points: Iterable[tuple[float, float]], kind: str, name: str = "polyline") -> Html:
    """Draw a line through points or, with `name` polygon, the area that it encloses."""
    return tag(name, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=kind)


def dot(x: float, y: float, radius: float, kind: str, tooltip: str | None = None) -> Html:
    """Draw a circle, with a tooltip if one is given."""
    return tag("circle", cx=x, cy=y, r=radius, class_=kind, data_t=tooltip)


def whisker(at: float, stat: Stat, y: Axis, kind: str) -> Html:
    """Draw the spread of a figure as a bar with ends."""
    if not stat.spread:
        return Html("")
    top, bottom = y(stat.mean + stat.spread), y(stat.mean - stat.spread)
    ends = (at, top, at, bottom), (at - 3, top, at + 3, top), (at - 3, bottom, at + 3, bottom)
    return join(*(ruler(*end, f"whisker {kind}") for end in ends))
