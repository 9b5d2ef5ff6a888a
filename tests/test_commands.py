"""`covey list`, `covey doctor`, and the examples that every command's help shows."""

import argparse
import json
import shlex
import subprocess
from pathlib import Path

import pytest

from command import Covey
from covey import cli
from covey.config import shipped


def subparsers() -> dict[str, argparse.ArgumentParser]:
    (found,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


@pytest.mark.parametrize("name", sorted(subparsers()))
def test_every_help_has_an_example_that_is_understood(name: str) -> None:
    parser = subparsers()[name]
    nested = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for one in nested[0].choices.values() if nested else [parser]:
        assert one.epilog and "example: covey " in one.epilog, f"{one.prog} shows no example"
        words = shlex.split(one.epilog.split("example: covey ", 1)[1].splitlines()[0])
        assert cli._parser().parse_args(words).act


def test_methods_are_listed_with_what_leaves_the_device(covey: Covey) -> None:
    rows = {row["name"]: row for row in json.loads(covey("list", "methods", "--json").out)}
    assert set(rows) == set(shipped("methods"))
    assert rows["local"]["leaves the device"] == "nothing"
    assert rows["fedmf"]["leaves the device"] == "update/items" and "solver.lr" in rows["fedmf"]["options"]
    assert "fedcl/user" in rows["fedcl"]["leaves the device"] and "2022" in rows["fedcl"]["paper"]
    assert all(len(line) <= 80 for line in covey("list", "methods").out.splitlines())


def test_presets_studies_and_datasets_are_listed(covey: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVEY_DATA", raising=False)
    for what in ("presets", "studies"):
        rows = json.loads(covey("list", what, "--json").out)
        assert {row["name"] for row in rows} == set(shipped(what)) and all(row["what"] for row in rows)
    assert "synthetic" in covey("list", "datasets").out


def test_bash_completes_commands_options_and_names(covey: Covey, tmp_path: Path) -> None:
    script = tmp_path / "covey.bash"
    script.write_text(covey("completion", "bash").out)

    def completed(*words: str) -> list[str]:
        typed = " ".join(shlex.quote(word) for word in words)
        ask = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _covey; echo ${{COMPREPLY[@]}}"
        return subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout.split()

    assert completed("covey", "rep") == ["report"]
    assert completed("covey", "run", "--me") == ["--method"]
    assert completed("covey", "run", "--method", "fed") == ["fedcl", "fedmf", "fedncf"]
    assert completed("covey", "list", "pre") == ["presets"]
    assert "bashcompinit" in covey("completion", "zsh").out


def test_the_doctor_trains_for_real(covey: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", "/nowhere/at/all")
    said = covey("doctor", "--json")
    found = json.loads(said.out)
    assert found["a run"][0] and found["torch"][0]
    assert not found["data"][0] and said.code == 1
