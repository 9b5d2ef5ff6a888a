"""Workers that die, parents that die, and where a run with workers can be started from."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from covey.core.errors import CoveyError
from covey.engine.fleet.processes import Processes
from covey.run.config.compose import compose
from covey.run.config.schema import Config
from covey.run.loop import run
from covey.run.workers import sharing, with_workers
from rounds import untimed

FILES = ("model.safetensors", "users.safetensors", "metrics.jsonl", "state.safetensors")
MARK = "covey.engine.fleet.processes"
SETS = ["data.users=300", "data.items=200", "engine.shards=8", "run.checkpoint=2"]
SETS += ["run.ceilings=[]"]


def config_of(workers: int, method: str = "fedmf") -> Config:
    return with_workers(Config.of(compose(method, rounds=8, set=SETS)), workers)


def children(parent: int) -> list[int]:
    """The worker processes of a process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text()
            status = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if MARK in words and int(status[1]) == parent and status[0] != "Z":
            found.append(int(folder.name))
    return found


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_killed_worker_changes_no_byte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(config_of(1), tmp_path / "whole")
    hit: list[int] = []

    def strike(number: int, total: int, row: dict[str, Any]) -> None:
        if number == 5 and not hit:
            hit.append(children(os.getpid())[0])
            Timer(0.02, os.kill, (hit[0], signal.SIGKILL)).start()  # in the next round

    run(config_of(2), tmp_path / "killed", progress=strike)
    assert hit and "goes back to its last checkpoint" in caplog.text
    for name in FILES:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert untimed(tmp_path / "killed") == untimed(tmp_path / "whole")
    assert not children(os.getpid())


def test_a_run_gives_up_when_workers_keep_dying(tmp_path: Path) -> None:
    def strike(number: int, total: int, row: dict[str, Any]) -> None:
        for pid in children(os.getpid()):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(CoveyError, match="fewer --jobs, then covey resume"):
        run(config_of(2), tmp_path / "out", progress=strike)
    run(config_of(1), tmp_path / "out", resume=True)
    run(config_of(1), tmp_path / "whole")
    for name in FILES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


SCRIPT = f"""
import covey
made = covey.fit("fedmf", rounds=3, jobs=2, set={SETS!r})
print("trained", len(made.recommend(["3"], k=5)["3"]))
"""
LONG = """
import covey
covey.fit("fedmf", rounds=100000, jobs=2, set={!r})
""".format([*SETS, "evaluate.every=100000"])


@pytest.mark.parametrize("way", ["script", "-c", "stdin"])
def test_no_main_guard_is_needed(way: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SCRIPT)
    words = {"script": [str(file)], "-c": ["-c", SCRIPT], "stdin": ["-"]}[way]
    given = SCRIPT if way == "stdin" else None
    done = subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained 5\n" and not done.stderr


def test_no_orphan_is_left_by_a_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", LONG], cwd=tmp_path) as parent:
        until = time.monotonic() + 120
        while len(workers := children(parent.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)
        assert len(workers) == 2 and parent.poll() is None
        parent.kill()
    assert gone(workers)


def test_a_worker_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(CoveyError, match=r"could not be started.*--jobs 1"):
        Processes.spawn(2)


@pytest.mark.parametrize(
    ("sets", "workers", "why"),
    [
        (["engine.shards=8"], 9, "9 workers and engine.shards = 8"),
        (["data.users=6", "engine.shards=8"], 7, "7 workers for 6 clients"),
        (["engine.one_pass=true"], 2, "one_pass.*--jobs 1"),
        (['fleet.use="covey.engine.fleet.wire:WireFleet"'], 2, "computes in one process"),
    ],
)
def test_what_cannot_be_shared_is_refused(
    sets: list[str], workers: int, why: str, tmp_path: Path
) -> None:
    config = with_workers(Config.of(compose("fedmf", rounds=2, set=sets)), workers)
    with pytest.raises(CoveyError, match=why):
        run(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_shard_that_is_missing_or_of_another_run_is_refused(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        config = Config.of(compose("fedmf", rounds=2, seed=seed, set=SETS))
        run(config, tmp_path / name, keep="checkpoint")
        (tmp_path / name / "result.json").unlink()
    one, two = (tmp_path / name / "checkpoint-2-3.safetensors" for name in ("one", "two"))
    config = Config.of(compose("fedmf", rounds=2, seed=0, set=SETS))
    one.write_bytes(two.read_bytes())
    with pytest.raises(CoveyError, match="belongs to another run; start again"):
        run(config, tmp_path / "one", resume=True)
    one.unlink()
    with pytest.raises(CoveyError, match="is not there"):
        run(config, tmp_path / "one", resume=True)


def test_runs_share_the_cores() -> None:
    configs = [Config.of(compose("fedmf", seed=k)) for k in range(3)]
    assert [c.engine.workers for c in sharing(2, configs)] == [1, 1, 1]
    assert [c.engine.workers for c in sharing(8, configs)] == [3, 3, 2]
    pooled = [Config.of(compose("ease")), *configs[:1]]
    assert [c.engine.workers for c in sharing(4, pooled)] == [1, 2]
    assert len({c.digest() for c in sharing(8, configs[:1]) + configs[:1]}) == 1
