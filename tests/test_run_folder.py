"""The folder of a run: whole or not there, whatever fails, and `covey resume` goes on from it."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command import SMALL, Covey, command, expect_line, leftovers, sets
from covey.cli.main import main
from covey.core.errors import CoveyError
from covey.core.progress import Bar
from covey.run import checkpoint
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run
from rounds import untimed

BEGIN = ("run", "--method", "fedmf", "--keep-checkpoint")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "done"
    assert (
        main([*BEGIN, *sets(*SMALL, "run.checkpoint=1", "evaluate.every=1"), "--out", str(out)])
        == 0
    )
    return out


@pytest.fixture
def stopped(finished: Path, tmp_path: Path) -> Path:
    """A run without its result: it goes on from the last checkpoint."""
    shutil.copytree(finished, tmp_path / "stopped")
    (tmp_path / "stopped" / "result.json").unlink()
    return tmp_path / "stopped"


def files(folder: Path) -> dict[str, object]:
    """All but times, which no two runs share."""
    timed = ("result.json", "rounds.jsonl")
    same: dict[str, object] = {
        p.name: p.read_bytes() for p in folder.iterdir() if p.name not in timed
    }
    return same | {"rounds.jsonl": untimed(folder)}


def test_a_folder_holds_one_run(finished: Path, covey: Covey) -> None:
    before = files(finished)
    output = covey("run", "--method", "fedmf", *sets(*SMALL), "--out", finished)
    expect_line(
        output,
        f"holds a run already; choose another --out, or continue with covey resume {finished}",
    )
    assert files(finished) == before


@pytest.mark.parametrize("method", ["fedmf", "ease"])
def test_out_is_no_folder(method: str, covey: Covey, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    changes = SMALL if method == "fedmf" else SMALL[:3]
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        expect_line(
            covey("run", "--method", method, *sets(*changes), "--out", out), "choose another --out"
        )
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_out_may_not_be_written(covey: Covey, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    output = covey("run", "--method", "fedmf", *sets(*SMALL), "--out", tmp_path / "closed" / "out")
    expect_line(output, "Permission denied")


def test_a_failure_leaves_other_files_alone(covey: Covey, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    output = covey(
        "run",
        "--method",
        "cofedrec",
        *sets(*SMALL, "model.keep_items=false"),
        "--out",
        tmp_path / "out",
    )
    expect_line(output, "keep_items = true")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["notes.txt"]


def full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Writes reach the disk `after` times, then never again."""
    real, done = os.fsync, iter(range(after))

    def fsync(handle: int) -> None:
        if next(done, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("after", range(20))
def test_a_full_disk(
    after: int, finished: Path, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the disk is full, nothing is half-written; with space the run ends the same way."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        full_disk(patch, after)
        output = covey(*BEGIN, *sets(*SMALL, "run.checkpoint=1", "evaluate.every=1"), "--out", out)
    expect_line(output, "No space left on device; free space")
    assert not leftovers(tmp_path)
    if not out.exists():
        assert after < 12  # before the first checkpoint
        return
    rows = (out / "metrics.jsonl").read_text()
    assert all(json.loads(row) for row in rows.splitlines())
    assert rows.endswith("\n")
    assert covey("resume", out, "--keep-checkpoint").code == 0
    assert files(out) == files(finished)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("this user may not mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_really_full_disk(small_disk: Path, covey: Covey) -> None:
    output = covey(
        "run", "--method", "fedmf", *sets(*SMALL, "model.dim=400"), "--out", small_disk / "out"
    )
    expect_line(output, "cannot write .*No space left on device.*free space")
    assert not list(small_disk.iterdir())


def test_resume_of_no_run(covey: Covey, tmp_path: Path) -> None:
    expect_line(
        covey("resume", tmp_path / "none"),
        "is no run folder: it has no config.toml; start one with covey run",
    )
    (tmp_path / "file").write_text("")
    expect_line(covey("resume", tmp_path / "file"), "is no run folder")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_resume_of_a_finished_run(finished: Path, covey: Covey) -> None:
    before = files(finished)
    output = covey("resume", finished)
    assert output.code == 0
    assert "popularity (floor)" in output.out
    again = json.loads(covey("resume", finished, "--json").out)
    assert again == {**json.loads((finished / "result.json").read_text()), "out": str(finished)}
    assert files(finished) == before


def test_resume_before_the_first_checkpoint(stopped: Path, finished: Path, covey: Covey) -> None:
    """There is nothing to go on from but the configuration, and it is kept whatever happens."""
    for file in stopped.glob("*.safetensors"):
        file.unlink()
    assert covey("resume", stopped, "--keep-checkpoint").code == 0
    assert files(stopped) == files(finished)


def test_resume_keeps_a_folder_that_fails(
    stopped: Path, covey: Covey, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stopped / "checkpoint.safetensors").unlink()
    full_disk(monkeypatch, 0)
    expect_line(covey("resume", stopped, "--keep-checkpoint"), "No space left")
    assert (stopped / "config.toml").exists()


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[: len(c) // 2], "is damaged .*start again with covey run and another --out"),
        (lambda c: c[:4], "is damaged"),
        (lambda c: b"", "is damaged"),
        (lambda c: flipped(c, len(c) - 100), "is damaged .*checksum.*start again with covey run"),
        (lambda c: flipped(c, 30), "is damaged|another version"),
        (
            lambda c: c.replace(b"covey checkpoint", b"covey chickpoint"),
            "another version wrote it; start again",
        ),
    ],
)
def test_resume_of_a_damaged_checkpoint(
    damage: Callable[[bytes], bytes], message: str, stopped: Path, covey: Covey
) -> None:
    file = stopped / "checkpoint.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    before = files(stopped)
    expect_line(covey("resume", stopped, "--keep-checkpoint"), message)
    assert files(stopped) == before


def test_no_byte_of_a_checkpoint_can_change_unseen(stopped: Path) -> None:
    file = stopped / "checkpoint.safetensors"
    whole = file.read_bytes()
    checkpoint.load(file)
    for place in range(0, len(whole), 11):
        file.write_bytes(flipped(whole, place))
        with pytest.raises(CoveyError):
            checkpoint.load(file)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "config.toml",
            lambda text: text.replace("lr = 0.01", "lr = 0.02"),
            "belongs to another configuration; start",
        ),
        ("config.toml", lambda text: text + "x = \n", "config.toml is not valid TOML"),
        (
            "metrics.jsonl",
            lambda text: text[:10],
            "has lost rows that the checkpoint needs; start again",
        ),
        (
            "rounds.jsonl",
            lambda text: text[:-10],
            "has lost rows that the checkpoint needs; start again",
        ),
        (
            "rounds.jsonl",
            lambda text: text.replace("elapsed", "else"),
            "has lost rows that the checkpoint needs",
        ),
    ],
)
def test_resume_with_other_files(
    name: str, change: Callable[[str], str], message: str, stopped: Path, covey: Covey
) -> None:
    text = (stopped / name).read_text()
    (stopped / name).write_text(change(text))
    expect_line(covey("resume", stopped, "--keep-checkpoint"), message)
    (stopped / name).write_text(text)
    (stopped / "result.json").write_text("{")
    expect_line(
        covey("resume", stopped, "--keep-checkpoint"),
        "result.json is damaged .*remove it and resume again",
    )


def test_an_interrupted_run_goes_on(
    finished: Path, covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(bar: Bar, number: int, total: int, row: dict[str, object]) -> None:
        if number == 2:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Bar, "update", interrupt)
        output = covey(*BEGIN, *sets(*SMALL, "run.checkpoint=1", "evaluate.every=1"), "--out", out)
    assert (output.code, output.err) == (130, f"covey: stopped; go on with covey resume {out}\n")
    assert covey("resume", out, "--keep-checkpoint").code == 0
    assert files(out) == files(finished)


def test_the_command_on_a_damaged_checkpoint(stopped: Path) -> None:
    (stopped / "checkpoint.safetensors").write_bytes(b"covey")
    done = command("resume", stopped)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("covey: ") and done.stderr.count("\n") == 1


def test_rounds_before_late_joiners_are_not_selected(tmp_path: Path) -> None:
    """They are measured on fewer people."""
    tree = read("methods", "fedmf") | {"method": "fedmf"}
    small = [
        "data.users=60",
        "data.items=60",
        "data.mean_items=8",
        "run.rounds=6",
        "run.late=0.5",
        "run.ceilings=[]",
        "model.dim=4",
    ]
    result = run(Config.of(assign(tree, small)), tmp_path / "run")
    assert result["round"] > 3
    assert len(checkpoint.load_model(tmp_path / "run" / "users.safetensors")["clients"]) == 60
