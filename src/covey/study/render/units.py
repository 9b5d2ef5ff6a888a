"""Formats of numbers, sizes, times and texts, the same wherever they are shown."""

import html
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from covey.core.fixed_point import ARITHMETIC

NOTHING = "–"  # in place of a missing figure
STALE = "Stale: made by an older arithmetic, with other last digits of sums"
Format = Callable[[float], str]
K = TypeVar("K")
V = TypeVar("V")


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

    def plain(self) -> dict[str, Any]:
        mean = None if math.isnan(self.mean) else self.mean
        return {"mean": mean, "spread": self.spread, "values": list(self.values)}

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


def points(found: Iterable[tuple[int, float | None]], seeds: int) -> list[Point]:
    """Return a point for each round that all seeds measured, from pairs of a round and a value."""
    by_round = grouped((at, v) for at, v in found if v is not None and not math.isnan(v))
    whole = sorted((at, values) for at, values in by_round.items() if len(values) == seeds)
    return [Point(at, statistics.fmean(v), min(v), max(v)) for at, v in whole]


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in the order of the pairs."""
    out: dict[K, list[V]] = {}
    for key, value in pairs:
        out.setdefault(key, []).append(value)
    return out


def number(value: float | None, form: str) -> str:
    """Format a figure such as +0.0120; a missing one is NOTHING."""
    return NOTHING if value is None or math.isnan(value) else format(value, form)


def fixed(value: float | None, digits: int = 4) -> str:
    """0.1430"""
    return number(value, f".{digits}f")


def brief(figure: object) -> str:
    """0.1430±.0021 for 0.1430 ± 0.0021, where space is short."""
    return str(figure).replace(" ± 0.", "±.").replace(" ± ", "±")


def rounded(value: float) -> str:
    """1,234 or 0.0021: four significant digits."""
    return f"{value:,.4g}"


def tick(value: float) -> str:
    """Format a number at an axis."""
    return f"{value:.4g}"


def percent(share: float | None) -> str:
    """17%"""
    return NOTHING if share is None else f"{share:.0%}"


def change(share: float) -> str:
    """-17%, and 0% without a sign."""
    whole = round(100 * share)
    return f"{whole:+d}%" if whole else "0%"


def size(n: float | None) -> str:
    """Format bytes with a unit."""
    if n is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:  # 999.5 rounds to 1,000, which has the next unit
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"


def seconds(value: float) -> str:
    """Format a time with its unit, for axes with times of different length."""
    return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"


def duration(value: float) -> str:
    """Format a time without its unit, for a column of seconds."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def span(values: Sequence[float], fmt: Format | type[str]) -> str:
    """Format the smallest and the largest value, or one if they look the same."""
    ends = (min(values), max(values)) if values else ()
    return " to ".join(dict.fromkeys(map(fmt, ends))) or NOTHING


def many(count: int, what: str) -> str:
    """1 run, 2 runs"""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def known(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the figures without NaNs."""
    return {k: v for k, v in figures.items() if not math.isnan(v)}


def cut(name: str, most: int) -> str:
    """Shorten a name to at most `most` characters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def plain(text: object) -> str:
    """Return the text as one line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def escaped(text: object) -> str:
    """Escape the text for Markdown, also inside tables."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", html.escape(plain(text), quote=False))


def code(text: object) -> str:
    """Return the text as Markdown code, such as a command."""
    return "`" + plain(text).replace("`", "'") + "`"


def origin(record: Mapping[str, Any]) -> str:
    """Return the commit and the machine of a record in words, and whether its sums are outdated."""
    commit, machine = plain(record["commit"]), plain(record["machine"])
    stale = "" if record.get("arithmetic", 1) >= ARITHMETIC else f". {STALE}"
    return f"commit {commit or 'unknown'}, {machine or 'no machine'}{stale}"
