"""Reads the times of a column, numbers or dates, and detects columns that may contain times."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from covey.data.dataset import NO_TIME, Array

from .reader import Misread

MISSING = ("", "nan", "nat", "na", "n/a", "null", "none", "\\n")
NAMES = re.compile(r"time|date|when|stamp|moment|created|updated|(^|[^a-z])(day|at|ts)$", re.I)
SECONDS = (6e8, 4.2e9)  # since 1970: from 1989 to 2103
YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})")
CACHED = 1 << 17  # days, and times of day, that are remembered
Moment = tuple[float, float]  # seconds with the month first, and with the day first, as in 1/2/2024


def looks_like_times(name: str, values: Sequence[Any]) -> bool:
    """Whether all values can be times, and are dates, recent (milli)seconds or named like times."""
    times = Times()
    try:
        times.add(values)
    except ValueError:
        return False
    found = times.parts[0][np.isfinite(times.parts[0])]
    low, high = SECONDS
    recent_E = ((low <= found) & (found <= high)) | ((low <= found / 1e3) & (found / 1e3 <= high))
    return bool(len(found)) and bool(times.dates or recent_E.all() or NAMES.search(name))


class Times:
    """Reads the times of one column: all numbers, or all dates in one order of day and month.

    `format` is that of `datetime.strptime`; None stands for numbers and usual dates. Messages name
    the place of the column, and the options that read no times (`without`) or `say` the format.
    """

    def __init__(
        self, at: int = -1, format: str | None = None, without: str = "", say: str = ""
    ) -> None:
        self.at, self.format, self.without, self.say = at, format, without, say
        self.dates: bool | None = None
        self.parts: list[Array] = []  # [n], or [2, n] if there are dates: see Moment
        self.shown: dict[str, str] = {}  # a date for each order that it is evidence of

    def add(self, cells: Sequence[Any]) -> None:
        found = None if self.format else numbers(cells)
        if found is None:
            read = {value: self._read(value) for value in dict.fromkeys(cells)}
            found = np.array([read[value] for value in cells], np.float64).T
        elif not np.isnan(found).all():
            self._same_kind(cells[int(np.isfinite(found).argmax())], False)
        self.parts.append(found)

    def finish(self) -> tuple[Array, tuple[str, ...]]:
        """The times, NO_TIME where there is none, and notes; refuses 1/2/2024 without evidence."""
        if not self.dates:
            flat = [part if part.ndim == 1 else part[0] for part in self.parts]
            return np.concatenate([*flat, np.empty(0)]), ()
        both = np.concatenate([np.broadcast_to(p, (2, p.shape[-1])) for p in self.parts], 1)
        day, month, either = (self.shown.get(order) for order in ("day", "month", "either"))
        if day and month:
            why = f"{month!r} has the month first and {day!r} the day"
            raise ValueError(f"dates of two orders: {why}; fix them, or {self.without}")
        if either and not (day or month):
            how = f"{self.say} such as '%d/%m/%Y' or '%m/%d/%Y', with %H:%M for a time of day"
            raise ValueError(f"{either!r} may have the day or the month first; say which: {how}")
        first, shown = ("day", day) if day else ("month", month)
        note = f"dates have the {first} first, as {shown!r} shows"
        return both[int(first == "day")], (note,) if shown else ()

    def _same_kind(self, value: Any, dates: bool) -> None:
        if self.dates is None:
            self.dates = dates
        if dates != self.dates:
            why = f"the time column mixes numbers and dates (here {str(value)!r})"
            raise Misread.cell(f"{why}; make it one or the other", self.at, value)

    def _read(self, value: Any) -> Moment:
        text = str(value).strip()
        if text.lower() in MISSING:
            return NO_TIME, NO_TIME
        number = _number(text) if not (self.format or self.dates) else None
        moment = self._formatted(text) if self.format else number or _moment(text)
        if moment is None:
            if self.dates and _number(text):
                self._same_kind(value, False)
            remedy = "use numbers, or dates like 2024-01-31"
            remedy += f", or say how they are written: {self.say}" if self.say else ""
            remedy += f"; or leave times out: {self.without}"
            raise Misread.cell(f"{text[:80]!r} is no time; {remedy}", self.at, value)
        if number is None and moment[0] != moment[1]:
            only = [k for k, seconds in zip(("month", "day"), moment) if not math.isnan(seconds)]
            self.shown.setdefault(only[0] if len(only) == 1 else "either", text)
        self._same_kind(value, number is None)
        return moment

    def _formatted(self, text: str) -> Moment:
        try:
            seconds = _seconds(datetime.strptime(text, self.format or ""))
        except (ValueError, re.error) as error:
            raise Misread.cell(f"{self.say}: {error}", self.at, text) from None
        return seconds, seconds


def numbers(cells: Sequence[Any]) -> Array | None:
    """All cells as finite numbers, or NaN; None if one is not."""
    try:
        found = np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, TypeError, OverflowError):
        return None
    return None if np.isinf(found).any() else found


def _number(text: str) -> Moment | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isinf(number) else (number, number)


def _moment(text: str) -> Moment | None:
    """The seconds of a date with or without a time of day, which may follow a space or T."""
    day, _, clock = text.partition("T" if text[10:11] == "T" else " ")
    days, seconds = _day(day.rstrip(",")), _clock(clock.strip())
    if days is None or seconds is None:
        try:
            seconds = _seconds(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            return None
        return seconds, seconds
    return days[0] + seconds, days[1] + seconds


@lru_cache(maxsize=CACHED)
def _day(text: str) -> Moment | None:
    if found := YEAR_FIRST.fullmatch(text):
        year, _, month, day = found.groups()
        moment = (_midnight(year, month, day),) * 2
    elif found := YEAR_LAST.fullmatch(text):
        one, mark, two, year = found.groups()
        moment = _midnight(year, one, two), _midnight(year, two, one)
        moment = (moment[1], moment[1]) if mark == "." else moment  # 1.2.2024: the day is first
    else:
        return None
    return None if all(map(math.isnan, moment)) else moment


def _midnight(year: str, month: str, day: str) -> float:
    try:
        return datetime(int(year), int(month), int(day), tzinfo=UTC).timestamp()
    except ValueError:
        return NO_TIME


@lru_cache(maxsize=CACHED)
def _clock(text: str) -> float | None:
    """The seconds since midnight in UTC; 0 for an empty text."""
    if not text:
        return 0.0
    text = f"0{text}" if text[1:2] == ":" else text
    try:
        found = time.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:  # 08:26 PM
        try:
            found = datetime.strptime(text, f"%I:%M{':%S' * (text.count(':') - 1)} %p").time()
        except ValueError:
            return None
    away = found.utcoffset() or timedelta()
    seconds = found.hour * 3600 + found.minute * 60 + found.second + found.microsecond / 1e6
    return seconds - away.total_seconds()


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
