"""The `covey` command as tests call it: in this process or in one of its own."""

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
class Said:
    code: int
    out: str
    err: str


Covey = Callable[..., Said]


def expect_line(said: Said, message: str) -> None:
    """One line that says what is wrong and what to do."""
    assert said.code == 2, said
    assert said.err.startswith("covey: "), said.err
    assert said.err.count("\n") == 1, said.err
    assert re.search(message, said.err), f"{said.err!r} does not say {message!r}"
    assert not said.out


def expect_nothing(out: Path) -> None:
    assert not out.exists(), sorted(p.name for p in out.iterdir())


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*.part")]


def command(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    words = [sys.executable, "-m", "covey", *map(str, arguments)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(covey.__file__).parents[1]),
    }  # this covey, from any folder
    return subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
