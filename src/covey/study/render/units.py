"""Numbers, sizes, times and texts: each is written in one way, wherever it is shown."""

import html
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING = "–"  # stands where there is no figure
Say = Callable[[float], str]


@dataclass(frozen=True)
class Stat:
    """A figure over seeds; the spread is the sample standard deviation, None for one run."""

    mean: float
    spread: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Stat":
        known = tuple(v for v in values if not math.isnan(v))
        if not known:
            return cls(math.nan, None, ())
        spread = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), spread, known)

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.4f}"
        return NOTHING if math.isnan(self.mean) else f"{self.mean:.4f}{spread}"


@dataclass(frozen=True)
class Point:
    """A figure of one round: the mean, the lowest and the highest of the seeds."""

    round: int
    mean: float
    low: float
    high: float


def points(found: Mapping[int, Sequence[float]], seeds: int) -> list[Point]:
    """Return a point for each round that all seeds measured; `found` has their values by round."""
    whole = sorted((at, values) for at, values in found.items() if len(values) == seeds)
    return [Point(at, statistics.fmean(v), min(v), max(v)) for at, v in whole]


def fixed(value: float | None, digits: int = 4) -> str:
    """0.1430"""
    return NOTHING if value is None or math.isnan(value) else f"{value:.{digits}f}"


def brief(figure: object) -> str:
    """0.1430±.0021 for 0.1430 ± 0.0021, where room is short."""
    return str(figure).replace(" ± 0.", "±.").replace(" ± ", "±")


def signed(value: float | None) -> str:
    """+0.0120"""
    return NOTHING if value is None or math.isnan(value) else f"{value:+.4f}"


def rounded(value: float) -> str:
    """1,234, 0.0021: four digits that count."""
    return f"{value:,.4g}"


def tick(value: float) -> str:
    """A number at an axis."""
    return f"{value:.4g}"


def percent(share: float | None) -> str:
    """17%"""
    return NOTHING if share is None else f"{share:.0%}"


def change(share: float) -> str:
    """-17%, and no sign where it rounds to nothing."""
    whole = round(100 * share)
    return f"{whole:+d}%" if whole else "0%"


def size(n: float | None) -> str:
    """Bytes, with a unit."""
    if n is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:  # what rounds to 1,000 has the next unit
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def seconds(value: float) -> str:
    """A time with its unit, where times of different length stand at one axis."""
    return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"


def duration(value: float) -> str:
    """A time without its unit, in a column of seconds."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def span(values: Sequence[float], say: Say | type[str]) -> str:
    """From the least to the most."""
    ends = (min(values), max(values)) if values else ()
    return " to ".join(dict.fromkeys(map(say, ends))) or NOTHING


def many(count: int, what: str) -> str:
    """1 run, 2 runs"""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def known(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures that are numbers."""
    return {k: v for k, v in figures.items() if not math.isnan(v)}


def cut(name: str, most: int) -> str:
    """A name in so many characters at most."""
    return name if len(name) <= most else name[: most - 1] + "…"


def plain(text: object) -> str:
    """One line, and nothing that a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def escaped(text: object) -> str:
    """Text that Markdown takes as text, also in a table."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", html.escape(plain(text), quote=False))


def code(text: object) -> str:
    """Text as code in Markdown, such as a command."""
    return "`" + plain(text).replace("`", "'") + "`"


def origin(record: Mapping[str, Any]) -> str:
    """Where the figures of a record are from: the commit and the machine."""
    commit, machine = plain(record["commit"]), plain(record["machine"])
    return f"commit {commit or 'unknown'}, {machine or 'no machine'}"
