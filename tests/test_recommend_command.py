"""`covey recommend` on run folders."""

import argparse
import json
from pathlib import Path

import pytest

from command import SMALL, Covey, sets
from covey.cli import arguments, recommend
from covey.core.errors import CoveyError


def call(*words: object) -> int:
    parser = argparse.ArgumentParser()
    arguments.add(parser.add_subparsers(), "recommend", recommend.act)
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
        ([run, "--all"], "--all --out FILE"),
        ([run, "--all", "--user", "3", "--out", "a.csv"], "--all --out FILE"),
        ([run, "--items", "3", "--out", "a.csv"], "a file has users of the dataset"),
        ([run, "--all", "--out", run / "metrics.jsonl"], r"ends in \.csv, \.jsonl, \.parquet$"),
        ([run, "--all", "--out", tmp_path / "none" / "a.csv"], "cannot write"),
    ]
    for words, message in cases:
        with pytest.raises(CoveyError, match=message) as output:
            call(*words)
        assert "\n" not in str(output.value)
    (run / "state.safetensors").unlink()
    with pytest.raises(CoveyError, match="has no checkpoint"):
        call(run, "--user", "3")


def test_its_example_works(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    arguments.add(commands, "recommend", recommend.act)
    epilog = commands.choices["recommend"].epilog
    assert epilog is not None
    monkeypatch.chdir(run.parent)
    for example in epilog.splitlines():
        words = example.removeprefix("example: covey recommend ").replace("runs/first", str(run))
        assert call(*words.split()) == 0
    assert "user 3" in capsys.readouterr().out
    assert (run.parent / "recs.csv").read_text().startswith("user,item,rank,score,title\n0,")


def test_lists_of_all_users_in_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run.parent / "recs.jsonl"
    assert call(run, "--all", "-k", 3, "--out", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    lists = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert told == {"out": str(out), "users": len(lists)} and len(lists) > 20
    assert call(run, "--user", "3", "3", "7", "-k", 3, "--out", out) == 0
    assert "lists of 2 users are in" in capsys.readouterr().out
    some = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    expected = {one["user"]: [choice["item"] for choice in one["items"]] for one in lists}
    assert {one["user"]: [choice["item"] for choice in one["items"]] for one in some} == {
        user: expected[user] for user in ("3", "7")
    }


def test_unknown_items_of_a_new_user_are_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(run, "--items", "1", "none", "-k", 2, "--json") == 0
    shown = capsys.readouterr()
    why = "1 of 2 items of the new user are not in the dataset and were left out: 'none'"
    assert shown.err == f"covey: {why}\n"
    assert len(json.loads(shown.out)[0]["items"]) == 2
