"""Lines below a table's rows (lowest seed, extra metrics), metrics over rounds, and traffic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from covey.core.errors import CoveyError
from covey.run.config.tree import parse
from covey.study.batch import Outcome
from covey.study.papers.claims import Claim, judge
from covey.study.papers.comparison import compare_runs
from covey.study.papers.curves import course_of, extra_of
from covey.study.papers.docs import SHOWN, render
from covey.study.papers.notes import some
from covey.study.papers.page import page
from covey.study.papers.plan import WHOLE, table
from covey.study.papers.record import reproduce, store
from covey.study.papers.settings import configs
from covey.study.papers.terminal import markdown, terminal
from covey.study.render.units import size

TABLE = """
title = "Groups"
metrics = ["hit@10"]
seeds = 3
told = ["co-clusters.group", "co-clusters.participants"]
ends = ["co-clusters.often"]
course = ["hit@10", "co-clusters.group"]
set = ["data.users=24", "data.items=40", "data.mean_items=8", "run.ceilings=[]", "evaluate.every=1"]
[[column]]
label = "tiny"
presets = ["loo-full"]
[[row]]
label = "popularity"
method = "popularity"
role = "floor"
[[row]]
label = "CoFedRec"
method = "cofedrec"
lowest = true
set = ["run.rounds=4", "model.dim=4", "grouping.categories=3", "mechanism.0.weight=0.0"]
[row.paper]
tiny = { "hit@10" = 0.2, "co-clusters.often" = 0.6964 }
[[claim]]
text = "Some take part"
better = "CoFedRec"
worse = "0.001"
columns = ["tiny"]
metrics = ["co-clusters.often"]
[[claim]]
text = "Nobody else takes part"
better = "CoFedRec"
worse = "24"
columns = ["tiny"]
metrics = ["co-clusters.participants"]
[[claim]]
text = "It hits more than always"
better = "CoFedRec"
worse = "1.5"
columns = ["tiny"]
metrics = ["hit@10"]
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("below")
    path = folder / "one.toml"
    path.write_text(TABLE)
    return reproduce(
        [table("own", "one", parse(path))], folder / "work", WHOLE, 1, lambda line: None
    )[0]


def cell_of(record: dict[str, Any]) -> dict[str, Any]:
    return next(row["cells"]["tiny"] for row in record["rows"] if row["label"] == "CoFedRec")


def line(text: str, name: str) -> list[str]:
    found = next(line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [part.strip() for part in found.split("|")[2:-1]]


def test_the_lowest_and_what_was_told_stand_below(record: dict[str, Any]) -> None:
    cell, text = cell_of(record), markdown(record)
    assert line(text, "CoFedRec, lowest") == ["", f"{min(cell['figures']['hit@10']):.4f}"]
    groups = [f"{one['co-clusters']['group']:g}" for one in cell["told"]]
    assert line(text, "CoFedRec, group") == ["", ", ".join(groups)] and len(groups) == 3
    often = [f"{one['co-clusters']['often']:,.4g}" for one in cell["ends"]]
    assert line(text, "CoFedRec, often in the last round") == [
        "",
        f"{', '.join(often)} (paper 0.6964)",
    ]
    assert (
        "popularity, " not in text and "seed by seed" not in text
    )  # nobody tells anything there; nothing twice
    assert cell["impossible"] == []  # a told number is no metric


def test_a_course_goes_over_all_rounds(record: dict[str, Any]) -> None:
    cell = cell_of(record)
    assert cell["course"]["rounds"] == [1, 2, 3, 4]
    figures = cell["course"]["figures"]
    assert all(len(each) == 3 for name in ("hit@10", "co-clusters.group") for each in figures[name])
    chosen = [figures["hit@10"][n - 1][seed] for seed, n in enumerate(cell["rounds"])]
    assert chosen == cell["figures"]["hit@10"]
    assert [figures["co-clusters.group"][-1][s] for s in range(3)] == [
        e["co-clusters"]["group"] for e in cell["ends"]
    ]
    text = markdown(record)
    assert "| hit@10, tiny | round 1 | round 2 | round 3 | round 4 |" in text
    mean = sum(figures["hit@10"][3]) / 3
    assert line(text.split("| hit@10, tiny |")[1], "CoFedRec")[-1] == f"{mean:.4f}"


def test_the_page_and_the_terminal_have_them_too(record: dict[str, Any]) -> None:
    shown = page([record])
    for what in (
        "CoFedRec, lowest",
        "CoFedRec, group",
        "tiny · co-clusters.group",
        "(paper 0.6964)",
    ):
        assert what in shown
    text = terminal(record)
    assert "CoFedRec, lowest" in text and "co-clusters.group, tiny" in text
    assert max(cell_len(one) for one in text.splitlines()) <= 80


def test_verdicts_on_what_runs_told(record: dict[str, Any]) -> None:
    verdicts = {claim["text"]: claim for claim in record["claims"]}
    assert verdicts["It hits more than always"]["verdict"] == "fails"
    assert verdicts["Nobody else takes part"]["verdict"] == "not decided"  # 24 is not more than 24
    found = compare_runs(np.array([0.7, 0.8, 0.75]), np.array([0.5, 0.5, 0.5]))
    assert found.low > 0 and found.p < 0.05 and found.difference == pytest.approx(0.25)
    assert not compare_runs(np.array([0.1, 0.9, 0.7]), np.array([0.5, 0.5, 0.5])).p < 0.05
    assert compare_runs(np.array([0.7]), np.array([0.5])).why


def test_equal_runs_are_seldom_told_apart() -> None:
    rng = np.random.default_rng(0)
    pairs = [compare_runs(rng.normal(size=3), rng.normal(size=3)).p < 0.05 for _ in range(2000)]
    assert np.mean(pairs) < 0.06


def test_a_number_that_nobody_told_is_not_decided() -> None:
    claim = Claim("?", "A", "0.5", ("one",), ("part.number",))
    (judged,) = judge([claim], lambda row, column: None, lambda row, column, metric: None)
    assert judged["verdict"] == "not decided" and "part.number" in judged["reason"]


def test_a_course_of_what_is_not_measured_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(TABLE.replace('course = ["hit@10"', 'course = ["hit@7"'))
    made = table("own", "one", parse(path))
    with pytest.raises(CoveyError, match="does not measure hit@7"):
        configs(made, made.rows[1], made.columns[0])


def test_bytes_are_of_one_client_and_round(record: dict[str, Any], tmp_path: Path) -> None:
    cell = cell_of(record)
    up, down = (cell[key] / 24 for key in ("up_bytes", "down_bytes"))
    expected = ["tiny", "4", size(up / 4), size(down / 4), size(up), size(down), size(up + down)]
    assert (
        line(SHOWN["traffic"](record), "CoFedRec") == expected and up > 4 * 40 * 4 * 4
    )  # a table of 40 x 4 each round
    store(record, tmp_path / "results")
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text(
        "<!-- traffic:own-one -->\n<!-- end -->\n<!-- table:own-one -->\n<!-- end -->\n"
    )
    render(docs, tmp_path / "results")
    text = (docs / "page.md").read_text()
    assert "up, a round" in text and "CoFedRec, lowest" in text and text.count("<!-- end -->") == 2


def test_some_rounds_of_many() -> None:
    assert some(list(range(1, 101)), 5) == [0, 25, 50, 74, 99]
    assert some([7], 5) == [0] and some([], 5) == [] and some([1, 2], 5) == [0, 1]


def test_a_course_of_an_attack(tmp_path: Path) -> None:
    """Exposure has its own key beside a round's test figures; without an attack it is absent."""
    lines = [{"round": n, "test": {"hit@10": 0.5}, "target": {"er@5": n / 10}} for n in (1, 2)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = course_of([Outcome(tmp_path)], ["er@5", "er@20", "hit@10"])
    assert found == {
        "rounds": [1, 2],
        "figures": {"er@5": [[0.1], [0.2]], "hit@10": [[0.5], [0.5]]},
    }
    mean = extra_of([Outcome(tmp_path), Outcome(tmp_path)], "course.er@5", last=False)
    assert mean is not None and mean.tolist() == [[pytest.approx(0.15)]] * 2
    assert extra_of([Outcome(tmp_path)], "course.er@20", last=False) is None
