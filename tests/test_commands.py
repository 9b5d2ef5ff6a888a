"""`covey list`, `covey doctor`, and the examples that every command's help shows."""

import argparse
import json
import re
import shlex
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from command import Covey
from covey.cli import main
from covey.run.config.shipped import shipped


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Of every command and sub-command."""
    for action in parser._actions:
        for one in (
            action.choices.values() if isinstance(action, argparse._SubParsersAction) else ()
        ):
            yield from (one, *parsers(one))


def examples(parser: argparse.ArgumentParser) -> list[list[str]]:
    return [
        shlex.split(line)
        for line in re.findall(r"^example: covey (.*)$", parser.epilog or "", re.MULTILINE)
    ]


def in_order(found: list[list[str]]) -> Iterator[list[str]]:
    """Each after those whose --out it reads."""
    made = {words[words.index("--out") + 1]: words for words in found if "--out" in words}
    waiting = list(found)
    while waiting:
        late = [made[word] for word in made if made[word] in waiting]
        ready = [
            words for words in waiting if not any(made.get(word) in late for word in _read(words))
        ]
        assert ready, f"these examples wait for each other: {waiting}"
        yield from ready
        waiting = [words for words in waiting if words not in ready]


def _read(words: list[str]) -> list[str]:
    return [word for before, word in zip(["", *words], words) if before != "--out"]


PARSERS = {parser.prog: parser for parser in parsers(main._parser())}


@pytest.mark.parametrize("name", PARSERS)
def test_every_help_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = examples(PARSERS[name])
    assert found, f"the help of '{name}' shows no example"
    with pytest.raises(SystemExit):
        PARSERS[name].parse_args(["--help"])
    assert f"\nexample: covey {found[0][0]}" in capsys.readouterr().out


@pytest.mark.slow
def test_every_example_runs(tmp_path: Path, covey: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run one after the other in a new folder; two of them need files, written here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COVEY_DATA", raising=False)
    monkeypatch.setenv("COVEY_CACHE", str(tmp_path / "cache"))
    Path("ratings.csv").write_text("user,item\nann,x\nann,y\nbo,x\nbo,z\n")
    with zipfile.ZipFile("ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", "1\t2\t5\t9\n3\t2\t5\t9\n3\t4\t5\t9\n")
        archive.writestr("ml-100k/u.item", "2|Two (1995)|\n4|Four (1995)|\n")
    found = [words for parser in PARSERS.values() for words in examples(parser)]
    failed = [
        (words, output)
        for words in in_order(found)
        if (output := covey(*words)).code or not output.out
    ]
    assert not failed
    assert Path("runs/second/result.json").exists() and Path("compare.html").exists()


def test_an_example_waits_for_what_it_reads() -> None:
    found = [
        ["compare", "a", "b", "--out", "c"],
        ["show", "c"],
        ["run", "--out", "b"],
        ["run", "--out", "a"],
        ["list"],
    ]
    order = list(in_order(found))
    assert sorted(order) == sorted(found)
    assert (
        order.index(found[1])
        > order.index(found[0])
        > max(order.index(found[2]), order.index(found[3]))
    )
    with pytest.raises(AssertionError, match="wait for each other"):
        list(in_order([["x", "a", "--out", "b"], ["x", "b", "--out", "a"]]))


def test_methods_are_listed_with_what_leaves_the_device(covey: Covey) -> None:
    rows = {row["name"]: row for row in json.loads(covey("list", "methods", "--json").out)}
    assert set(rows) == set(shipped("methods"))
    assert rows["local"]["leaves the device"] == "nothing"
    assert (
        rows["fedmf"]["leaves the device"] == "update/items"
        and "solver.lr" in rows["fedmf"]["options"]
    )
    assert "fedcl/user" in rows["fedcl"]["leaves the device"] and "2022" in rows["fedcl"]["paper"]
    assert all(len(line) <= 80 for line in covey("list", "methods").out.splitlines())


def test_presets_papers_and_datasets_are_listed(
    covey: Covey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COVEY_DATA", raising=False)
    rows = json.loads(covey("list", "presets", "--json").out)
    assert {row["name"] for row in rows} == set(shipped("presets")) and all(
        row["what"] for row in rows
    )
    rows = json.loads(covey("list", "papers", "--json").out)
    assert "pfedrec table1" in {row["name"] for row in rows} and all(row["what"] for row in rows)
    assert "synthetic" in covey("list", "datasets").out


def test_bash_completes_commands_options_and_names(covey: Covey, tmp_path: Path) -> None:
    script = tmp_path / "covey.bash"
    script.write_text(covey("completion", "bash").out)

    def completed(*words: str) -> list[str]:
        typed = " ".join(shlex.quote(word) for word in words)
        ask = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}"
        ask += "; _covey; echo ${COMPREPLY[@]}"
        return subprocess.run(
            ["bash", "-c", ask], capture_output=True, text=True, check=True
        ).stdout.split()

    assert completed("covey", "rep") == ["report", "reproduce"]
    assert completed("covey", "run", "--me") == ["--method"]
    ours = [name for name in shipped("methods") if name.startswith("fed")]
    assert "fedmf" in ours and completed("covey", "run", "--method", "fed") == ours
    assert completed("covey", "list", "pre") == ["presets"]
    assert "bashcompinit" in covey("completion", "zsh").out


def test_the_doctor_trains_for_real(covey: Covey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", "/nowhere/at/all")
    output = covey("doctor", "--json")
    found = json.loads(output.out)
    assert found["a run"][0] and found["torch"][0]
    assert not found["data"][0] and output.code == 1
