"""The page that adds a method: its code runs here as printed, and it names every hook."""

import json
import re
import shlex
import sys
from ast import literal_eval
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from covey.cli import main
from covey.contract.mechanism import ClientHooks, Mechanism, PlanningHooks, ServerHooks

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "add-a-method.md").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
)
FIRST, SECOND = (
    shlex.split(line)
    for line in re.findall(r"^\.venv/bin/covey (run .*)$", PAGE, flags=re.MULTILINE)
)


def module_of(file: str) -> ModuleType:
    """A block of the page as the module that it becomes in the reader's folder."""
    module = ModuleType(file.removesuffix(".py"))
    sys.modules[module.__name__] = module
    exec(compile(FILES[file], f"docs/add-a-method.md: {file}", "exec"), vars(module))
    return module


momentum = module_of("momentum.py")
fedprox = module_of("fedprox.py")
page = module_of("test_fedprox.py")
TestOnThePage = page.TestProximal  # pytest collects the suite that it inherits
test_on_the_page = page.test_updates_are_shorter


def test_the_files_of_the_page() -> None:
    assert list(FILES) == ["momentum.py", "fedprox.py", "fedprox.toml", "test_fedprox.py"]


def test_the_first_method_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The command on the page is well above the same run without the mechanism."""
    monkeypatch.chdir(tmp_path)
    alone = list(FIRST)
    place = alone.index("--set")
    del alone[place : place + 2]
    figures = []
    for words in (FIRST, alone):
        assert main.main([*words, "--json", "--out", f"run-{len(figures)}"]) == 0
        figures.append(json.loads(capsys.readouterr().out)["test"]["ndcg@20"])
    assert figures[0] > 1.3 * figures[1]


def test_the_configuration_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fedprox.toml").write_text(FILES["fedprox.toml"])
    monkeypatch.chdir(tmp_path)
    assert main.main(SECOND) == 0
    assert (tmp_path / "runs/fedprox/result.json").exists()


def test_the_suite_lists_what_it_checks() -> None:
    """One line on the page for each inherited test, drop-outs and late joiners in one."""
    lines = PAGE.partition("It checks that\n\n")[2].partition("\n\n")[0].splitlines()
    tests = [name for name in dir(TestOnThePage) if name.startswith("test_")]
    assert len(lines) == len(tests) - 1


@pytest.mark.parametrize(
    ("heading", "hooks"),
    [("Client", ClientHooks), ("Server", ServerHooks), ("Planning", PlanningHooks)],
)
def test_the_tables_and_the_picture_have_every_hook(heading: str, hooks: type) -> None:
    section = PAGE.partition(f"\n### {heading} hooks\n")[2].partition("\n### ")[0]
    listed = re.findall(r"^\| `(\w+)", section, flags=re.MULTILINE)
    assert sorted(listed) == sorted(name for name in vars(hooks) if not name.startswith("_"))
    drawn = re.findall(
        r'class="hook".*?>(\w+)<', (DOCS / "images/round.svg").read_text(encoding="utf-8")
    )
    assert set(listed) <= set(drawn)


def test_the_table_of_attributes_is_complete() -> None:
    section = PAGE.partition("\n### Attributes\n")[2].partition("\n### ")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, flags=re.MULTILINE)
    assert [name for name, _ in listed if name not in Mechanism.__annotations__] == []
    assert {name for name, _ in listed} == set(Mechanism.__annotations__)
    for name, default in listed:
        shown = frozenset() if default == "empty" else literal_eval(default.strip("`"))
        assert getattr(Mechanism, name) == shown, name
