"""Long jobs log their progress, and nothing is printed unless the user asks for it."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from command import SMALL, Covey, expect_line, sets
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run

SIZES = "data={'users': 30, 'items': 60, 'mean_items': 8}"
FIT = f"import covey; covey.fit('fedmf', rounds=1, {SIZES}, model={{'dim': 4}})"


def config_of(method: str, *changes: str) -> Config:
    small = [s for s in SMALL if not s.startswith("model.") or "model" in read("methods", method)]
    return Config.of(assign(read("methods", method) | {"method": method}, [*small, *changes]))


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [
        f"{record.name.removeprefix('covey.run.')}: {record.getMessage()}"
        for record in caplog.records
        if record.name.startswith("covey.run.") and record.levelno == level
    ]


def test_a_run_logs_its_start_and_end_and_each_round(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))  # references are made again
    with caplog.at_level(logging.DEBUG, "covey"):
        run(config_of("fedmf", "run.rounds=3", 'run.ceilings=["ease"]'), tmp_path / "out")
    infos = logged(caplog, logging.INFO)
    starts = [
        "loop: run of fedmf with seed 0 begins in ",
        "assemble: preparation of dataset synthetic begins",
        "assemble: dataset is ready: 30 users, 60 items, ",
        "federated: 30 clients, 3 rounds, 0 of them done",
        "floor_and_ceiling: reference model popularity: fit and evaluation begin",
        "floor_and_ceiling: reference model popularity: evaluated on 30 users",
        "floor_and_ceiling: reference model ease: fit and evaluation begin",
        "floor_and_ceiling: reference model ease: evaluated on 30 users",
        f"loop: run in {tmp_path / 'out'} ends after 3 rounds and ",
    ]
    assert len(infos) == len(starts) and all(map(str.startswith, infos, starts)), infos
    rounds = [line for line in logged(caplog, logging.DEBUG) if "clients asked" in line]
    assert rounds == [
        f"federated: round {n} of 3: 30 clients asked, 30 answered" for n in range(1, 4)
    ]


def test_a_pooled_run_logs_its_fit(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO, "covey"):
        run(config_of("mf", "pooled.epochs=2"), tmp_path / "out")
    fits = [line for line in logged(caplog, logging.INFO) if line.startswith("pooled: ")]
    assert fits[0] == "pooled: fit of PooledMF on pooled data of 30 users begins"
    assert fits[1].startswith("pooled: fit of PooledMF ends; validation selected epoch ")


def test_python_prints_nothing_unless_logging_is_configured() -> None:
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert not done.stdout and not done.stderr


def test_the_program_prints_progress_on_request(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "covey", "run", "--method", "fedmf", *sets(*SMALL), "--out"]
    environment = os.environ | {"COVEY_LOG": "info"}
    done = subprocess.run(
        [*words, str(tmp_path / "out")], capture_output=True, text=True, check=True, env=environment
    )
    found = [line for line in done.stderr.splitlines() if line.startswith("covey: run of fedmf")]
    assert len(found) == 1


def test_an_unknown_level_is_refused(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COVEY_LOG", "loud")
    words = ("run", "--method", "fedmf", "--out", tmp_path / "out")
    expect_line(covey(*words), "COVEY_LOG = 'LOUD' is no level; use DEBUG, INFO")
    assert not (tmp_path / "out").exists()
