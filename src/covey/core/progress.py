"""The progress of a run: a bar in a terminal or a notebook, and now and then a line in a log."""

import sys
import time
from itertools import chain, repeat
from threading import Event, Thread
from typing import Any

DELAYS = (10.0, 20.0, 30.0, 60.0, 120.0, 300.0)  # seconds before each line of a log; then the last
REDRAWN = 0.2  # seconds between two pictures of a bar in a notebook


class Bar:
    """Shows progress on standard error or, also if `shown` is None, in the cell of a notebook."""

    def __init__(self, shown: bool | None = True, metric: str = "") -> None:
        self.metric, self.ended, self.began = metric, Event(), time.monotonic()
        self.done, self.total, self.note, self.left = 0, 0, "", ""
        self.first: tuple[int, float] | None = None  # the first round that was seen to end, when
        self.drawn, self.cell, self.bar = 0.0, None, None
        show_in_cell = None if shown is False else _display()
        self.logs = bool(shown) and show_in_cell is None and not sys.stderr.isatty()
        if show_in_cell:
            self.cell = show_in_cell(self, display_id=True)
        elif shown and not self.logs:
            self.bar = _rich_bar()
            self.task = self.bar.add_task("", total=None, note="")

    def __enter__(self) -> "Bar":
        if self.bar:
            self.bar.start()
        if self.logs:
            Thread(target=self._log, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        if self.bar:
            self.bar.stop()
        if self.cell:
            self.cell.update(self)

    def update(self, number: int, total: int, row: dict[str, Any]) -> None:
        """Shows that round `number` of `total` is done, with the metrics of its row in the log."""
        now = time.monotonic()
        self.done, self.total, self.first = number, total, self.first or (number, now)
        if number > self.first[0]:
            each = (now - self.first[1]) / (number - self.first[0])
            self.left = f", about {_duration(each * (total - number))} left"
        part, what = ("valid", "on validation") if row.get("valid") else ("test", "in the test")
        means = [f"{k} {v:.4f}" for k, v in row.get(part, {}).items() if "/" not in k]
        means.sort(key=lambda text: not text.startswith(f"{self.metric} "))
        self.note = f"{', '.join(means[:2])} {what}" if means else self.note
        if self.bar:
            self.bar.update(self.task, completed=number, total=total, note=self.note)
        if self.cell and now - self.drawn > REDRAWN:
            self.drawn = now
            self.cell.update(self)

    def _log(self) -> None:
        for delay in chain(DELAYS, repeat(DELAYS[-1])):
            if self.ended.wait(delay):
                return
            print(f"covey: {self}", file=sys.stderr, flush=True)

    def __repr__(self) -> str:
        so_far = _duration(time.monotonic() - self.began)
        if not self.total:  # before the first round has ended, and where there are none
            return f"at work for {so_far}"
        note = f", {self.note}" if self.note else ""
        left = f", {so_far}" if self.done == self.total or self.ended.is_set() else self.left
        return f"round {self.done} of {self.total}{note}{left}"

    def _repr_html_(self) -> str:
        known = f' value="{self.done}" max="{self.total}"' if self.total else ""
        bar = "" if self.ended.is_set() else f"<progress{known}></progress> "
        return f"{bar}{self}"


def _duration(seconds: float) -> str:
    digits = 1 if seconds < 10 else 0
    return f"{seconds:.{digits}f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _display() -> Any:
    """The function that shows an object in a notebook; None elsewhere."""
    ipython = sys.modules.get("IPython")  # has been imported where this is a notebook
    shell = ipython.get_ipython() if ipython else None
    return ipython.display.display if ipython and hasattr(shell, "kernel") else None


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    count, note = (TextColumn("round"), MofNCompleteColumn()), TextColumn("{task.fields[note]}")
    return Progress(*count, BarColumn(20), Left(), note, console=Console(stderr=True))
