"""Studies: every run once, whatever breaks off, and a table that says where its figures come from."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from covey import run as engine
from covey import studies
from covey.config import Config
from covey.core import CoveyError
from covey.run import run
from covey.studies import main, render, render_docs, study, tree_of

STUDY = """
title = "Two rows"
metrics = ["recall@20", "ndcg@20"]
seeds = 2
preset = "ratio-full"
set = ["data.users=30", "data.items=60", "data.mean_items=8", "run.ceilings=[]", "run.checkpoint=1"]
[[row]]
label = "FedMF"
method = "fedmf"
set = ["run.rounds=3", "model.dim=4"]
[[row]]
label = "popularity (floor)"
method = "popularity"
seeds = 1
"""


class Inline:
    """Runs what is submitted on the spot: a process of its own takes seconds to start."""

    def __init__(self, *options: object) -> None:
        pass

    def __enter__(self) -> "Inline":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the rounds that were run, in this process."""
    seen: list[int] = []
    real = engine.run_round
    monkeypatch.setattr(studies, "ProcessPoolExecutor", Inline)
    monkeypatch.setattr(engine, "run_round", lambda *args: (seen.append(args[3].number), real(*args))[1])
    return seen


@pytest.fixture
def plan(tmp_path: Path) -> str:
    (tmp_path / "two.toml").write_text(STUDY)
    return str(tmp_path / "two.toml")


def test_a_study_runs_every_seed_of_every_row(plan: str, tmp_path: Path, rounds: list[int]) -> None:
    made = study(plan, tmp_path / "work")
    assert rounds == [1, 2, 3] * 2
    assert [(row["label"], row["seeds"], row["preset"]) for row in made["rows"]] == [
        ("FedMF", 2, "ratio-full"),
        ("popularity (floor)", 1, "ratio-full"),
    ]
    fedmf = made["rows"][0]
    one, two = fedmf["figures"]["ndcg@20"]
    assert one != two
    assert fedmf["mean"]["ndcg@20"] == pytest.approx((one + two) / 2)
    assert fedmf["spread"]["ndcg@20"] == pytest.approx(abs(one - two) / 2**0.5)
    assert fedmf["up_bytes"] > 0
    assert made["rows"][1]["spread"] == {"recall@20": 0.0, "ndcg@20": 0.0}
    assert fedmf["config"]["model"]["dim"] == 4
    assert len(list((tmp_path / "work").iterdir())) == 3
    assert not list((tmp_path / "work").rglob("checkpoint.safetensors"))  # large, and done with


def test_a_second_time_nothing_runs(plan: str, tmp_path: Path, rounds: list[int]) -> None:
    first = study(plan, tmp_path / "work")
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("*")}
    rounds.clear()
    again = study(plan, tmp_path / "work")
    assert rounds == []
    assert again == first
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "work").rglob("*")} == stamps
    study(plan, tmp_path / "work", ["run.rounds=1"])  # another configuration is another run
    assert rounds == [1, 1]


def test_a_run_that_broke_off_goes_on(plan: str, tmp_path: Path, rounds: list[int]) -> None:
    whole = study(plan, tmp_path / "whole")["rows"][0]["figures"]

    class Killed(Exception):
        pass

    def kill(number: int, total: int, row: dict[str, Any]) -> None:
        if number == 3:
            raise Killed

    text = studies.read("studies", plan)
    config = Config.of(tree_of(text["row"][0], text, 1))
    with pytest.raises(Killed):
        run(config, tmp_path / "work" / config.digest(), progress=kill)
    rounds.clear()
    assert study(plan, tmp_path / "work")["rows"][0]["figures"] == whole
    assert rounds == [1, 2, 3, 3]  # seed 0 from the start, seed 1 from its checkpoint of round 2


def test_a_run_without_a_checkpoint_begins_again(plan: str, tmp_path: Path, rounds: list[int]) -> None:
    text = studies.read("studies", plan)
    config = Config.of(tree_of(text["row"][0], text, 0))
    (tmp_path / "work" / config.digest()).mkdir(parents=True)
    (tmp_path / "work" / config.digest() / "config.toml").write_text("half a")
    study(plan, tmp_path / "work")
    assert rounds == [1, 2, 3] * 2


TABLE = {
    "title": "Two rows",
    "command": "python -m covey.studies two",
    "commit": "abc",
    "machine": "a CPU",
    "metrics": ["hit@10"],
    "rows": [
        {"label": "A", "seeds": 2, "mean": {"hit@10": 0.5}, "spread": {"hit@10": 0.01}, "rounds": [7, 3]},
        {"label": "B", "seeds": 1, "mean": {"hit@10": 0.25}, "spread": {"hit@10": 0.0}, "rounds": [0]},
    ],
}
MARKDOWN = """Two rows. `python -m covey.studies two`, commit abc, a CPU.

|  | hit@10 | seeds | rounds |
|---|---|---|---|
| A | 0.5000 ± 0.0100 | 2 | 3 to 7 |
| B | 0.2500 | 1 | 0 |"""


def test_the_table_in_markdown() -> None:
    assert render(TABLE) == MARKDOWN


def test_docs_are_rendered_between_their_marks(tmp_path: Path) -> None:
    page, other = tmp_path / "docs" / "a" / "page.md", tmp_path / "docs" / "other.md"
    page.parent.mkdir(parents=True)
    page.write_text("before\n<!-- study:two -->\nold\n<!-- end -->\nafter\n")
    other.write_text("no table here\n")
    (tmp_path / "two.json").write_text(json.dumps(TABLE))
    assert render_docs(tmp_path / "docs", tmp_path) == [page]
    assert page.read_text() == f"before\n<!-- study:two -->\n{MARKDOWN}\n<!-- end -->\nafter\n"
    assert render_docs(tmp_path / "docs", tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("metrics", "metric"), r"has no option 'metric'; did you mean 'metrics'\?"),
        (('title = "Two rows"\n', ""), "needs 'title'"),
        (("seeds = 1", "seeds = 0"), "row 2: seeds = 0; at least 1"),
        (("label", "labl"), r"row 1 has no option 'labl'; did you mean 'label'\?"),
        (('method = "fedmf"', 'method = "fedfm"'), r"no method 'fedfm'; did you mean 'fedmf'\?"),
        (('"ndcg@20"]', '"hit@10"]'), "row 'FedMF' does not measure hit@10; name it in evaluate.metrics"),
        ((STUDY[STUDY.index("[[row]]") :], ""), r"has no rows; write \[\[row\]\]"),
    ],
)
def test_bad_studies(change: tuple[str, str], message: str, plan: str, tmp_path: Path, rounds: list[int]) -> None:
    Path(plan).write_text(STUDY.replace(*change))
    with pytest.raises(CoveyError, match=message):
        study(plan, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_the_command(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own, as users run it."""
    paths = [f"--{k}={tmp_path / k}" for k in ("results", "work", "docs")]
    assert main([plan, *paths, "--set", "run.rounds=1"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Two rows. `python -m covey.studies ")
    assert "FedMF seed 1" in said.err
    stored = json.loads((tmp_path / "results" / "two.json").read_text())
    assert f"{render(stored)}\n" == said.out
    assert main(["no-such-study", *paths]) == 2
    assert capsys.readouterr().err.startswith("covey: there is no study 'no-such-study'")
