"""Charts that several pages show: curves over the rounds, methods in rows, maps of items."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .markup import Html, join
from .svg import COLOURS, Axis, Frame, between, colour, cross, dot, extent, ruler, ticks, way, words
from .units import Point, Say, Stat, cut, fixed, known, tick

MOST_POINTS = 200  # of one curve; a longer one is thinned
FEW_POINTS = 12  # so few are each seen
WIDE = 50  # times between the least and the most: then an axis is one of powers of ten


@dataclass(frozen=True)
class Line:
    """A figure over the rounds."""

    name: str
    points: Sequence[Point]
    selected: int | None = None  # the round that was chosen
    colour: int = 0


class Entry(NamedTuple):
    """A method's figure, in a chart of several."""

    name: str
    stat: Stat
    colour: int
    paper: float = math.nan  # not a number where a paper has none
    impossible: str = ""  # why the paper's cannot be
    failed: bool = False


Marks = Mapping[str, float]  # floor and ceiling by name, such as "ease (ceiling)"


def curves(metric: str, lines: Sequence[Line], marks: Marks, least: float = 1e-9) -> Html:
    """A metric over the rounds, floor and ceiling across; the axis goes up to `least` anyway."""
    frame = Frame() if known(marks) else Frame(380, right=20)  # without names behind the end
    highs = (p.high for line in lines for p in line.points)
    top = max([*highs, *known(marks).values(), least]) * 1.06
    y = frame.up(0, top)
    grid = frame.rows(y, ticks(top), tick), frame.marks(y, marks)
    return _over_rounds(frame, f"{metric} over the rounds", lines, y, fixed, *grid)


def spent(what: str, lines: Sequence[Line], say: Say) -> Html:
    """What each round took; powers of ten where methods differ widely, so that each is seen."""
    frame = Frame(340, 220, left=54, right=20)
    points = [p for line in lines for p in line.points]
    top = max(p.high for p in points) or 1.0
    low = min((p.low for p in points if p.low > 0), default=1.0)
    if max(p.mean for p in points) > WIDE * low:
        levels = powers(low, top)
        y = frame.up(levels[0], levels[-1], log=True)
    else:
        levels = ticks(top * 1.1)
        y = frame.up(0, top * 1.1)
    grid = frame.rows(y, levels, say)
    return _over_rounds(frame, f"{what}, round by round", lines, y, say, grid)


def powers(low: float, high: float) -> list[float]:
    """Powers of ten around the values."""
    ends = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**k for k in range(ends[0], max(ends[1], ends[0] + 1) + 1)]


def _over_rounds(
    frame: Frame, label: str, lines: Sequence[Line], y: Axis, say: Say, *parts: Html
) -> Html:
    rounds = [p.round for line in lines for p in line.points] or [0, 1]
    first, last = min(rounds), max(rounds)
    x = frame.across(min(first, last - 1), last)
    shown = dict.fromkeys([first, *(int(t) for t in ticks(last, 5) if t > first), last])
    axis = [frame.numbers(x, shown, "{:,}".format), frame.below("round")]
    drawn = (_curve(line, x, y, say) for line in lines)
    return frame.picture(label, *parts, *axis, *drawn)


def _curve(line: Line, x: Axis, y: Axis, say: Say) -> Html:
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
        told = f"{line.name}, round {p.round}: {say(p.mean)}" + " (selected)" * chosen
        look = f"dot {kind}" + (" chosen" if chosen else usual)
        parts.append(dot(x(p.round), y(p.mean), 5 if chosen else 2.5, look, told))
    return join(*parts)


def thinned(points: Sequence[Point], keep: int | None = None) -> list[Point]:
    """At most about MOST_POINTS, with the first, the last and the chosen one."""
    step = max(-(-len(points) // MOST_POINTS), 1)
    last = len(points) - 1
    return [p for i, p in enumerate(points) if i % step == 0 or i == last or p.round == keep]


def strip(metric: str, rows: Sequence[Entry], marks: Marks) -> Html:
    """A row for each method with its figure behind the end; floor and ceiling are named above."""
    frame = Frame(height=58 + 26.0 * len(rows), left=118, right=100, top=34, bottom=24)
    there = [v for row in rows for v in row.stat.values]
    top = max([*there, *known(marks).values(), 1e-9]) * 1.04
    x = frame.across(0, top)
    grid = frame.columns(x, ticks(top, 3), tick), _named_above(frame, x, marks)
    entries = _entries(frame, x, rows, figures=True)
    return frame.picture(f"{metric} on the test, with floor and ceiling", *grid, *entries)


def _named_above(frame: Frame, x: Axis, marks: Marks) -> Html:
    """Lines up, each named at its head in one of two lines; two at one place share a name."""
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
    """Ours beside the paper's, a line for each method; the axis may begin anywhere."""
    frame = Frame(380, 30 + 21.0 * len(rows), 124, 12, 4, 26)
    low, high = extent(v for row in rows for v in (*heights(row.stat), row.paper))
    x = frame.across(low, high)
    told = "; ".join(f"{row.name} {row.stat}{_theirs(row, ', paper ')}" for row in rows)
    grid = frame.columns(x, between(low, high, 5), tick)
    return frame.picture(f"{title}, {metric}: {told}", grid, *_entries(frame, x, rows))


def _theirs(row: Entry, lead: str) -> str:
    return "" if math.isnan(row.paper) else f"{lead}{fixed(row.paper)}"


def heights(stat: Stat) -> tuple[float, float]:
    """From below to above the mean, as far as the spread."""
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
    """The paper's figure as a ring, each seed, the spread, and the mean."""
    kind, stat, parts = colour(row.colour), row.stat, list[Html]()
    if told := _theirs(row, f"{row.name}, the paper: "):
        why = f" (cannot be: {row.impossible})" if row.impossible else ""
        parts.append(dot(x(row.paper), y, 5, "ring paper", told + why))
        parts += [cross(x(row.paper), y + 4)] if row.impossible else []
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


Range = tuple[float, float]


def item_map(name: str, spots: Sequence[Spot], within: tuple[Range, Range] | None = None) -> Html:
    """Items in two directions; what lies beyond the ranges stands at the edge, and says so."""
    room = 14.0
    frame = Frame(420, 320, room, room, room, room)
    across, up = within or (_ends([s.x for s in spots]), _ends([s.y for s in spots]))
    x, y = frame.across(*across), frame.up(*up)
    shown = []
    for spot in spots:
        at = min(max(spot.x, x.low), x.high), min(max(spot.y, y.low), y.high)
        beyond = at != (spot.x, spot.y)
        told = spot.title + " (beyond the frame)" * beyond
        kind = f"dot {spot.kind}" + " beyond" * beyond
        shown.append(dot(x(at[0]), y(at[1]), spot.radius, kind, told))
    return frame.picture(f"item map of {name}", *shown, kind="hover map")


def _ends(values: Sequence[float]) -> Range:
    return min(values, default=0.0), max(values, default=1.0)
