"""Atomic writes, also if the process is killed while it writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from covey.core import atomic
from covey.core.errors import CoveyError


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    dies = (
        "import os, pathlib, sys; from covey.core import atomic;"
        "fill = lambda part: (part.write_text('half'), os._exit(9));"
        "atomic.write(pathlib.Path(sys.argv[1]), fill)"
    )
    path = tmp_path / "a.txt"
    subprocess.run([sys.executable, "-c", dies, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".part" and not path.exists()
    atomic.write_text(path, "whole")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"] and path.read_text() == "whole"


def test_what_others_are_writing_stays(tmp_path: Path) -> None:
    mine, theirs = tmp_path / ".a.txt.notanumber.part", tmp_path / f".a.txt.{os.getppid()}.part"
    mine.touch(), theirs.touch()
    atomic.write_text(tmp_path / "a.txt", "whole")
    assert mine.exists() and theirs.exists()


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    atomic.write_text(path, "old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CoveyError, match="No space left"):
        atomic.write(path, fail)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"] and path.read_text() == "old"
