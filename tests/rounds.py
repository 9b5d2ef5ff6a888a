"""Reads the rows of `rounds.jsonl` for comparisons."""

import json
from pathlib import Path
from typing import Any

TIMES = ("seconds", "cpu_seconds", "elapsed", "cpu_elapsed")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def untimed(folder: Path) -> list[dict[str, Any]]:
    """The rows without times, which are the same however often the run was killed."""
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows(folder)]
