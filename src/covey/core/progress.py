"""A progress bar with the time left, shown only in a terminal."""

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """The progress bar of one run on standard error."""

    def __init__(self, quiet: bool = False) -> None:
        self.shown = sys.stderr.isatty() and not quiet
        columns = (
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(20),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), disable=not self.shown)
        self.task = self.bar.add_task("", total=None, note="")

    def __enter__(self) -> "Bar":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def update(self, number: int, total: int, row: dict[str, Any]) -> None:
        """Shows that round `number` of `total` is done, with the metrics of its row in the log."""
        figures = row.get("valid") or row.get("test") or {}
        note = " ".join(f"{k} {v:.4f}" for k, v in figures.items() if isinstance(v, float))[:44]
        self.bar.update(self.task, completed=number, total=total)
        if note:
            self.bar.update(self.task, note=note)
