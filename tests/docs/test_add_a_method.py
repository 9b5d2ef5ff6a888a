"""The page that adds a method: its code is run here, as it stands there."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from covey.cli import main

PAGE = (Path(__file__).parents[2] / "docs/add-a-method.md").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
)


def module_of(file: str) -> ModuleType:
    """A block of the page as the module it will be in the reader's folder."""
    module = ModuleType(file.removesuffix(".py"))
    sys.modules[module.__name__] = module
    exec(compile(FILES[file], f"docs/add-a-method.md: {file}", "exec"), vars(module))
    return module


fedprox = module_of("fedprox.py")
page = module_of("test_fedprox.py")
TestOnThePage = page.TestProximal  # pytest collects the suite that it inherits
test_on_the_page = page.test_updates_are_shorter


def test_the_page_has_three_files() -> None:
    assert list(FILES) == ["fedprox.py", "fedprox.toml", "test_fedprox.py"]


def test_the_command_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = re.findall(r"^\.venv/bin/covey (run .*)$", PAGE, flags=re.MULTILINE)
    (tmp_path / "fedprox.toml").write_text(FILES["fedprox.toml"])
    monkeypatch.chdir(tmp_path)
    assert main.main(shlex.split(command)) == 0
    assert (tmp_path / "runs/fedprox/result.json").exists()


def test_the_suite_lists_what_it_checks() -> None:
    """One line on the page for each inherited test, drop-outs and late joiners in one."""
    lines = PAGE.partition("It checks that\n\n")[2].partition("\n\n")[0].splitlines()
    tests = [name for name in dir(TestOnThePage) if name.startswith("test_")]
    assert len(lines) == len(tests) - 1
