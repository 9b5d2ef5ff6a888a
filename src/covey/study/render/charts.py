"""Charts that several pages use: curves over the rounds, methods in rows, maps of items."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .markup import Html, join
from .svg import COLOURS, Axis, Frame, between, colour, dot, extent, ruler, ticks, way, words
from .units import Format, Point, Stat, cut, fixed, known, tick

MOST_POINTS = 200  # of one curve; a longer one is thinned
FEW_POINTS = 12  # up to this number, each point is drawn strongly
WIDE = 50  # ratio of the largest to the smallest value from which an axis is logarithmic
Lines = Sequence["Line"]
Marks = Mapping[str, float]  # floor and ceiling by name, such as "ease (ceiling)"
Range = tuple[float, float]
Ranges = tuple[Range, Range]  # across and up


@dataclass(frozen=True)
class Line:
    """A metric over the rounds."""

    name: str
    points: Sequence[Point]
    selected: int | None = None  # the round selected on validation
    colour: int = 0


class Entry(NamedTuple):
    """A method's figure in a chart of several methods."""

    name: str
    stat: Stat
    colour: int
    paper: float = math.nan  # NaN if the paper gives no figure
    impossible: str = ""  # why the paper's figure is impossible
    failed: bool = False
    x: float = math.nan  # its place in a sweep


def curves(metric: str, lines: Lines, marks: Marks, least: float = 1e-9) -> Html:
    """Draw metrics over the rounds, with floor and ceiling; the axis reaches at least `least`."""
    frame = Frame() if known(marks) else Frame(380, right=20)  # no names at the right
    highs = (p.high for line in lines for p in line.points)
    top = max([*highs, *known(marks).values(), least]) * 1.06
    y = frame.up(0, top)
    grid = frame.rows(y, ticks(top), tick), frame.marks(y, marks)
    return _over_rounds(frame, f"{metric} over the rounds", lines, y, fixed, *grid)


def spent(what: str, lines: Lines, fmt: Format) -> Html:
    """Draw the cost of each round; the axis is logarithmic if methods differ widely."""
    frame = Frame(340, 220, left=54, right=20)
    points = [p for line in lines for p in line.points]
    top = max(p.high for p in points) or 1.0
    low = min((p.low for p in points if p.low > 0), default=1.0)
    levels, y = ticks(top * 1.1), frame.up(0, top * 1.1)
    if max(p.mean for p in points) > WIDE * low:
        levels = powers(low, top)
        y = frame.up(levels[0], levels[-1], log=True)
    return _over_rounds(frame, f"{what}, round by round", lines, y, fmt, frame.rows(y, levels, fmt))


def powers(low: float, high: float) -> list[float]:
    """Return the powers of ten around the values."""
    ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**k for k in range(ends[0], max(ends[1], ends[0] + 1) + 1)]


def _over_rounds(frame: Frame, name: str, lines: Lines, y: Axis, fmt: Format, *parts: Html) -> Html:
    rounds = [p.round for line in lines for p in line.points] or [0, 1]
    first, last = min(rounds), max(rounds)
    x = frame.across(min(first, last - 1), last)
    shown = dict.fromkeys([first, *(int(t) for t in ticks(last, 5) if t > first), last])
    axis = [frame.numbers(x, shown, "{:,}".format), frame.below("round")]
    return frame.picture(name, *parts, *axis, *(_curve(line, x, y, fmt) for line in lines))


def _curve(line: Line, x: Axis, y: Axis, fmt: Format) -> Html:
    points, kind = thinned(line.points, line.selected), colour(line.colour)
    dashed = " dashed" if line.colour >= COLOURS else ""
    parts = []
    if any(p.high > p.low for p in points):
        edge = [(p.round, p.high) for p in points] + [(p.round, p.low) for p in reversed(points)]
        parts.append(way(((x(at), y(v)) for at, v in edge), f"band {kind}", "polygon"))
    parts.append(way(((x(p.round), y(p.mean)) for p in points), f"curve {kind}{dashed}"))
    usual = "" if len(points) <= FEW_POINTS else " faint"
    for p in points:
        chosen = p.round == line.selected
        tooltip = f"{line.name}, round {p.round}: {fmt(p.mean)}" + " (selected)" * chosen
        css = f"dot {kind}" + (" chosen" if chosen else usual)
        parts.append(dot(x(p.round), y(p.mean), 5 if chosen else 2.5, css, tooltip))
    return join(*parts)


def thinned(points: Sequence[Point], keep: int | None = None) -> list[Point]:
    """Return about MOST_POINTS points at most, among them the first, the last and the selected."""
    step = max(-(-len(points) // MOST_POINTS), 1)
    last = len(points) - 1
    return [p for i, p in enumerate(points) if i % step == 0 or i == last or p.round == keep]


def strip(metric: str, rows: Sequence[Entry], marks: Marks) -> Html:
    """Draw a row for each method, its figure at the right; floor and ceiling are named above."""
    frame = Frame(height=58 + 26.0 * len(rows), left=118, right=100, top=34, bottom=24)
    there = [v for row in rows for v in row.stat.values]
    top = max([*there, *known(marks).values(), 1e-9]) * 1.04
    x = frame.across(0, top)
    grid = frame.columns(x, ticks(top, 3), tick), _named_above(frame, x, marks)
    entries = _entries(frame, x, rows, figures=True)
    return frame.picture(f"{metric} on the test set, with floor and ceiling", *grid, *entries)


def _named_above(frame: Frame, x: Axis, marks: Marks) -> Html:
    """Draw vertical lines, named above in two alternating lines; close ones share a name."""
    groups: list[tuple[str, float]] = []
    for name, value in sorted(known(marks).items(), key=lambda mark: mark[1]):
        if groups and x(value) - x(groups[-1][1]) < 48:
            groups[-1] = (f"{groups[-1][0]}, {name}", groups[-1][1])
        else:
            groups.append((name, value))
    lines = (ruler(x(v), frame.top - 4, x(v), frame.base, "mark") for v in known(marks).values())
    middle = (frame.left + frame.end) / 2
    names = (
        words(x(v), 13 + 13 * (i % 2), name, "end" if x(v) > middle else "start", "note")
        for i, (name, v) in enumerate(groups)
    )
    return join(*lines, *names)


def beside(title: str, metric: str, rows: Sequence[Entry]) -> Html:
    """Draw our figures and the paper's in a row for each method; the axis need not start at 0."""
    frame = Frame(380, 30 + 21.0 * len(rows), 124, 12, 4, 26)
    low, high = extent(v for row in rows for v in (*heights(row.stat), row.paper))
    x = frame.across(low, high)
    tooltip = "; ".join(f"{row.name} {row.stat}{theirs(row, ', paper ', False)}" for row in rows)
    grid = frame.columns(x, between(low, high, 5), tick)
    return frame.picture(f"{title}, {metric}: {tooltip}", grid, *_entries(frame, x, rows))


def theirs(row: Entry, lead: str, reason: bool = True) -> str:
    """Return the paper's figure, and why it is impossible; "" if the paper gives none."""
    why = f" (impossible: {row.impossible})" if row.impossible and reason else ""
    return "" if math.isnan(row.paper) else f"{lead}{fixed(row.paper)}{why}"


def heights(stat: Stat) -> tuple[float, float]:
    """Return the mean minus and plus the spread."""
    around = stat.spread or 0.0
    return stat.mean - around, stat.mean + around


def _entries(frame: Frame, x: Axis, rows: Sequence[Entry], figures: bool = False) -> list[Html]:
    pitch, out = (frame.base - frame.top) / max(len(rows), 1), []
    for i, row in enumerate(rows):
        y = frame.top + pitch * (i + 0.5)
        out.append(words(frame.left - 8, y + 4, cut(row.name, 17), "end"))
        if figures:
            out.append(words(frame.end + 8, y + 4, str(row.stat), kind="figures"))
        out.append(_entry(frame, x, row, y))
    return out


def _entry(frame: Frame, x: Axis, row: Entry, y: float) -> Html:
    """Draw the paper's figure as a ring, each seed, the spread, and the mean."""
    kind, stat, parts = colour(row.colour), row.stat, list[Html]()
    if tooltip := theirs(row, f"{row.name}, the paper: "):
        parts.append(dot(x(row.paper), y, 5, "ring paper", tooltip))
        parts += [words(x(row.paper), y + 4, "✗", "middle", "cross")] if row.impossible else []
    if row.failed:
        parts.append(words(frame.left + 4, y + 4, "failed", kind="fail"))
    if stat.spread:
        low, high = heights(stat)
        parts.append(ruler(x(low), y, x(high), y, f"spread {kind}"))
    for value in stat.values:
        parts.append(dot(x(value), y, 3, f"dot seed {kind}", f"{row.name}: {fixed(value)}"))
    if stat.values or not math.isnan(stat.mean):
        parts.append(dot(x(stat.mean), y, 4.5, f"dot {kind}", f"{row.name}: {stat}"))
    return join(*parts)


class Spot(NamedTuple):
    """An item on a map."""

    x: float
    y: float
    title: str
    radius: float
    kind: str = "item"


def item_map(name: str, spots: Sequence[Spot], within: Ranges | None = None) -> Html:
    """Draw items in two directions; those outside the ranges are drawn, and marked, at the edge."""
    margin = 14.0
    frame = Frame(420, 320, margin, margin, margin, margin)
    across, up = within or (_ends([s.x for s in spots]), _ends([s.y for s in spots]))
    x, y = frame.across(*across), frame.up(*up)
    shown = []
    for spot in spots:
        at = min(max(spot.x, x.low), x.high), min(max(spot.y, y.low), y.high)
        beyond = at != (spot.x, spot.y)
        tooltip = spot.title + " (outside the frame)" * beyond
        kind = f"dot {spot.kind}" + " beyond" * beyond
        shown.append(dot(x(at[0]), y(at[1]), spot.radius, kind, tooltip))
    return frame.picture(f"item map of {name}", *shown, kind="hover map")


def _ends(values: Sequence[float]) -> Range:
    return min(values, default=0.0), max(values, default=1.0)
