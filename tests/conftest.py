"""Fixtures of several test files."""

from pathlib import Path

import pytest

from command import Covey, Output
from covey.cli.main import main
from covey.run import federated as engine
from covey.study import batch as execution
from inline import Inline


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees or touches the developer's own cache of datasets."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("COVEY_CACHE", str(folder))
    return folder


@pytest.fixture
def covey(capsys: pytest.CaptureFixture[str]) -> Covey:
    def call(*arguments: object) -> Output:
        code = main([str(a) for a in arguments])
        return Output(code, *capsys.readouterr())

    return call


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rounds that `covey reproduce` or `covey matrix` ran in this process."""
    seen: list[int] = []
    real = engine.run_round
    monkeypatch.setattr(execution, "processes", Inline)
    monkeypatch.setattr(
        engine, "run_round", lambda *args: (seen.append(args[3].number), real(*args))[1]
    )
    return seen
