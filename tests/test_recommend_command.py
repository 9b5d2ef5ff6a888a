"""`covey recommend` on run folders."""

import argparse
import json
from pathlib import Path

import pytest

from command import SMALL, Covey, sets
from covey.cli import recommend
from covey.core.errors import CoveyError


def call(*words: object) -> int:
    parser = argparse.ArgumentParser()
    recommend.add(parser.add_subparsers())
    options = parser.parse_args(["recommend", *map(str, words)])
    return int(options.act(options))


@pytest.fixture
def run(covey: Covey, tmp_path: Path) -> Path:
    assert covey("run", "--method", "fedmf", "--out", tmp_path / "run", *sets(*SMALL)).code == 0
    return tmp_path / "run"


def test_json_for_users_and_a_new_one(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run, "--user", "3", "7", "--user", "0", "-k", 4, "--items", "1", "2", "--json") == 0
    lists = json.loads(capsys.readouterr().out)
    assert [one["user"] for one in lists] == ["3", "7", "0", "new"]
    assert all(
        len(one["items"]) == 4 and set(one["items"][0]) == {"item", "title", "score"}
        for one in lists
    )
    scores = [choice["score"] for choice in lists[0]["items"]]
    assert scores == sorted(scores, reverse=True)
    assert not {"1", "2"} & {choice["item"] for choice in lists[-1]["items"]}


def test_a_new_user_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run, "--items", "1", "-k", 2) == 0
    assert "user new" in capsys.readouterr().out


def test_a_table_fits_80_columns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(run, "--user", "3", "-k", 3) == 0
    out = capsys.readouterr().out
    assert "user 3" in out and out.count("│") >= 9
    assert max(map(len, out.splitlines())) <= 80


def test_seen_items_on_demand(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = []
    for more in ([], ["--seen"]):
        call(run, "--user", "3", "-k", 1000, "--json", *more)
        lengths.append(len(json.loads(capsys.readouterr().out)[0]["items"]))
    assert lengths[0] < lengths[1] == 60


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    cases = [
        ([run], "name users"),
        ([run, "--user", "nobody"], "no user 'nobody'.*: --items ID ID$"),
        (
            [run, "--items", "nothing"],
            "no item 'nothing'.*; give items that the run was trained with",
        ),
        ([tmp_path, "--user", "3"], "no run folder"),
    ]
    for words, message in cases:
        with pytest.raises(CoveyError, match=message) as output:
            call(*words)
        assert "\n" not in str(output.value)
    (run / "checkpoint.safetensors").unlink()
    with pytest.raises(CoveyError, match="has no checkpoint"):
        call(run, "--user", "3")


def test_its_example_works(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    recommend.add(commands)
    epilog = commands.choices["recommend"].epilog
    assert epilog is not None
    words = epilog.removeprefix("example: covey recommend ").replace("runs/first", str(run)).split()
    assert call(*words) == 0
    assert "user 3" in capsys.readouterr().out
