"""The lock of run folders: one process at a time, and released when that process dies."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import covey as package
from command import SMALL, Covey, expect_line, sets
from covey import CoveyError
from covey.core import lock
from covey.core.lock import hold

LONG = [*SMALL[:3], *SMALL[4:], "run.rounds=40", "run.checkpoint=1"]


def test_of_two_runs_on_one_folder_the_second_is_refused(covey: Covey, tmp_path: Path) -> None:
    """Real processes; after a kill the folder is free at once."""
    out = tmp_path / "out"
    words = ["run", "--method", "fedmf", *sets(*LONG), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1])}
    first = subprocess.Popen(
        [sys.executable, "-m", "covey", *words], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 120
        while not (out / "checkpoint.safetensors").exists() and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGSTOP)  # it holds the folder meanwhile
        assert not (out / "result.json").exists(), "it was done too soon"
        before = {p.name: p.read_bytes() for p in out.iterdir()}
        holder = f"process {first.pid} on {socket.gethostname()}"
        who = f"{out} is in use by {holder}; wait until it ends, or choose another"
        expect_line(covey(*words), who)
        expect_line(covey("resume", out), who)
        with pytest.raises(CoveyError, match="is in use by process"):
            package.fit("fedmf", set=LONG, out=out)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    finally:
        first.kill()
        first.wait()
    assert covey("resume", out).code == 0
    assert (out / "metrics.jsonl").read_text().count("\n") >= 1 and (out / "result.json").exists()
    assert lock.NAME not in {p.name for p in out.iterdir()}
    expect_line(covey(*words), "holds a run already")


def test_a_folder_in_use_is_not_written(tmp_path: Path) -> None:
    fitted = package.fit("fedmf", set=SMALL)
    with hold(tmp_path / "out"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(CoveyError, match=f"is in use by process {os.getpid()} on "):
            fitted.save(tmp_path / "out", overwrite=True)
        assert sorted(tmp_path.rglob("*")) == before
    assert not list(tmp_path.iterdir())


def test_folders_that_stay_empty_are_removed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("there", "new/deep/run"):
        with pytest.raises(ZeroDivisionError), hold(tmp_path / folder):
            raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    with hold(tmp_path / "new" / "run"):
        (tmp_path / "new" / "run" / "config.toml").touch()
    assert [p.name for p in (tmp_path / "new" / "run").iterdir()] == ["config.toml"]


def test_a_lock_file_that_was_removed_in_between_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last holder removes it after we opened it and before we lock it."""
    real, calls = fcntl.flock, 0

    def flock(file: Any, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (tmp_path / lock.NAME).unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold(tmp_path):
        assert calls == 2
        with pytest.raises(CoveyError, match="is in use"), hold(tmp_path):
            pass


def test_without_locks_a_run_goes_on_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with hold(tmp_path / "out"):
        (tmp_path / "out" / "result.json").touch()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["result.json"]
    assert "cannot be locked (No locks available)" in caplog.text
