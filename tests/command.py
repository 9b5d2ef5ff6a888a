"""Runs the `covey` command in tests, in this process or in another one."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import covey

SMALL = (
    "data.users=30",
    "data.items=60",
    "data.mean_items=8",
    "run.rounds=2",
    "model.dim=4",
    "run.ceilings=[]",
)


def sets(*assignments: str) -> list[str]:
    return [word for text in assignments for word in ("--set", text)]


@dataclass(frozen=True)
class Output:
    code: int
    out: str
    err: str


Covey = Callable[..., Output]


def expect_line(output: Output, message: str) -> None:
    """Expects an error in one line that contains the message."""
    assert output.code == 2, output
    assert output.err.startswith("covey: "), output.err
    assert output.err.count("\n") == 1, output.err
    assert re.search(message, output.err), f"{output.err!r} does not say {message!r}"
    assert not output.out


def expect_nothing(out: Path) -> None:
    assert not out.exists(), sorted(p.name for p in out.iterdir())


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*.part")]


def command(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs covey of this checkout in another process, from any folder."""
    words = [sys.executable, "-m", "covey", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(covey.__file__).parents[1])}
    options = {"cwd": folder, "env": environment, "check": False}
    return subprocess.run(words, capture_output=True, text=True, **options)
