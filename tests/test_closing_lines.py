"""The last lines of a run say what a reader needs: its health, counters, the metric that counts."""

import json
from pathlib import Path

import pytest

from command import SMALL, Covey, sets
from covey.study.render.wording import told

FEDMF = (
    "run",
    "--method",
    "fedmf",
    *sets(*SMALL, "run.rounds=4", "evaluate.every=1", "model.scale=0.1", "solver.decay=0"),
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("solver.lr=1e9",), "120 uploads had numbers out of range and were dropped"),
        (("solver.lr=1e30",), "120 uploads had numbers out of range and were dropped"),
        (
            ("solver.lr=20", "objective.use=covey.objectives:Bce", "data.users=200"),
            "training failed: recall@20 was 0.",
        ),
    ],
)
def test_a_run_that_failed_says_so(
    changes: tuple[str, ...], message: str, covey: Covey, tmp_path: Path
) -> None:
    output = covey(*FEDMF, *sets(*changes), "--out", tmp_path / "out")
    assert (output.code, output.err) == (0, "")
    closing = " ".join(output.out.splitlines()[-4:])
    lr = float(changes[0].partition("=")[2])
    assert f"warning: {message}" in closing and f"smaller steps than solver.lr = {lr:g}" in closing
    (first, *_) = json.loads((tmp_path / "out" / "result.json").read_text())["health"]
    assert message in first


def test_a_healthy_run_has_no_warning(covey: Covey, tmp_path: Path) -> None:
    output = covey(*FEDMF, "--out", tmp_path / "out")
    assert output.code == 0 and "warning" not in output.out


def test_the_selecting_metric_comes_first_in_80_columns(covey: Covey, tmp_path: Path) -> None:
    names = [f"{name}@{k}" for name in ("hit", "precision", "recall", "ndcg") for k in (5, 10, 20)]
    metrics = sets(f"evaluate.metrics={names}", "evaluate.select=ndcg@10")
    run = covey(*FEDMF, *metrics, "--out", tmp_path / "out").out.splitlines()
    compared = covey("compare", tmp_path / "out").out.splitlines()
    for lines in (run, compared):
        heads = [line.replace("┃", " ").split() for line in lines if " test " in line]
        assert heads[0][:3] == ["test", "ndcg@10", "hit@10"]
        assert sorted({word for head in heads for word in head if "@" in word}) == sorted(names)
        assert max(map(len, lines[:-1])) <= 80  # the last names a folder
        assert sum("popularity (floor)" in line for line in lines) == len(heads)


def test_counters_say_what_they_mean(covey: Covey, tmp_path: Path) -> None:
    output = covey("run", "--method", "cofedrec", *sets(*SMALL), "--out", tmp_path / "out")
    text = " ".join(output.out.split())
    assert "clients shared item tables, of 30 that took part, chosen by their rows of" in text
    assert told("mine", {"hits": 3.0, "share": 0.12345}) == "mine: hits 3, share 0.1235"
    assert told("spectral", {"new": 1.0, "strength": 0.5}).endswith("a strength of 0.5, new 1")
