"""Fixtures of several test files."""

import pytest

from command import Covey, Said
from covey.cli import main


@pytest.fixture
def covey(capsys: pytest.CaptureFixture[str]) -> Covey:
    def call(*arguments: object) -> Said:
        code = main([str(a) for a in arguments])
        return Said(code, *capsys.readouterr())

    return call
