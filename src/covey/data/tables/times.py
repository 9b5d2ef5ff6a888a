"""Reads the times of a column, numbers or dates, and detects columns that may contain times."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from covey.data.dataset import NO_TIME

MISSING = ("", "nan", "nat", "na", "n/a", "null", "none", "\\n")
NAMES = re.compile(
    r"time|date|when|stamp|moment|created|updated|(^|[^a-z])(day|at|ts)$", re.IGNORECASE
)
SECONDS = (6e8, 4.2e9)  # since 1970: from 1989 to 2103


def looks_like_times(name: str, values: Sequence[Any]) -> bool:
    """Whether all values can be times, and are dates, recent (milli)seconds or named like times."""
    times = Times()
    try:
        found = [time for value in values if not math.isnan(time := times.read(value))]
    except ValueError:
        return False
    low, high = SECONDS
    recent = all(low <= time <= high or low <= time / 1000 <= high for time in found)
    return bool(found) and (bool(times.dates) or recent or bool(NAMES.search(name)))


class Times:
    """Reads the times of one column: all numbers, or all dates."""

    def __init__(self, without: str = "") -> None:
        self.without = without  # the option that reads no times, for messages
        self.dates: bool | None = None
        self.missing = 0
        self.rows = 0

    def read(self, value: Any) -> float:
        self.rows += 1
        if value is None or value != value or str(value).strip().lower() in MISSING:
            self.missing += 1
            return NO_TIME
        time, date = self._parse(value)
        if self.dates is None:
            self.dates = date
        if date != self.dates:
            why = f"the time column mixes numbers and dates (here {str(value)!r})"
            raise ValueError(f"{why}; make it one or the other")
        return time

    def _parse(self, value: Any) -> tuple[float, bool]:
        if isinstance(value, datetime):
            return _seconds(value), True
        try:
            time = float(value)
            if math.isfinite(time):
                return time, False
        except (ValueError, TypeError):  # text, or a date without a time
            try:
                return _seconds(datetime.fromisoformat(_iso(str(value).strip()))), True
            except ValueError:
                pass
        remedy = f"use numbers or dates like 2024-01-31, or leave times out: {self.without}"
        raise ValueError(f"{str(value)!r} is no time; {remedy}")

    def notes(self, dropped: bool) -> tuple[str, ...]:
        """What a user should know about missing times."""
        if not self.missing:
            return ()
        rows = f"{self.missing:,} of {self.rows:,} rows"
        if dropped:
            return (f"{rows} had no time and were dropped",)
        used = "no times are used and the order of the file counts"
        return (
            f"{rows} have no time: {used}; covey data import --drop-untimed drops them instead",
        )


def _iso(text: str) -> str:
    """2024/1/31 and 31.1.2024 as 2024-01-31; 1/2/2024 stays, because it has two meanings."""
    if found := re.match(r"(\d{4})/(\d{1,2})/(\d{1,2})(?!\d)", text):
        year, month, day = found.groups()
    elif found := re.match(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\d)", text):
        day, month, year = found.groups()
    else:
        return text
    return f"{year}-{month:0>2}-{day:0>2}{text[found.end() :]}"


def _seconds(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
