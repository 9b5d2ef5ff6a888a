"""Fixtures of several test files."""

from pathlib import Path

import pytest

from command import Covey, Said
from covey.cli import main


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees or touches the developer's own cache of datasets."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("COVEY_CACHE", str(folder))
    return folder


@pytest.fixture
def covey(capsys: pytest.CaptureFixture[str]) -> Covey:
    def call(*arguments: object) -> Said:
        code = main([str(a) for a in arguments])
        return Said(code, *capsys.readouterr())

    return call
