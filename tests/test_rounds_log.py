"""`rounds.jsonl`: what each round took, and the times and users of whole runs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from command import SMALL, Covey, sets
from covey.core.progress import Bar
from covey.run import checkpoint, rounds_log
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run
from rounds import rows, untimed


def config_of(method: str, *changes: str) -> Config:
    small = [s for s in SMALL if not s.startswith("model.") or "model" in read("methods", method)]
    return Config.of(
        assign(read("methods", method) | {"method": method}, [*small, "run.rounds=5", *changes])
    )


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedmf", ["run.cohort=12"]),
        ("cofedrec", ["grouping.categories=4"]),
        ("pdc-frs", ["run.late=0.2", "run.cohort=10"]),
        ("fedmf", ['attack.use="covey.attacks.a_ra:ARa"', "attack.share=0.1"]),
    ],
)
def test_the_rounds_add_up_to_the_run(method: str, changes: list[str], tmp_path: Path) -> None:
    config = config_of(method, *changes)
    result = run(config, tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [row["round"] for row in found] == list(
        range(result["rounds"] + 1)
    )  # 0 is the enrolment
    for way in ("up_bytes", "down_bytes"):
        assert sum(row[way] for row in found) == result["traffic"][way] > 0
    for spent, whole in (("seconds", "elapsed"), ("cpu_seconds", "cpu_elapsed")):
        assert all(row[spent] >= 0 for row in found)
        assert sum(row[spent] for row in found) <= found[-1][whole] + 1e-5
        assert found[-1][whole] <= result[spent] + 1e-3
        assert sorted(row[whole] for row in found) == [row[whole] for row in found]
    if config.run.cohort:
        assert {row["clients"] for row in found[1:]} <= {
            config.run.cohort,
            30 % config.run.cohort,
            24 % 10,
        }


def test_who_diverges_has_dropped_out(tmp_path: Path) -> None:
    result = run(config_of("fedmf", "solver.lr=1e30", "run.rounds=4"), tmp_path / "out")
    found = rows(tmp_path / "out")
    assert sum(row["dropped"] for row in found) == sum(result["traffic"]["dropped"].values()) > 0
    assert all(row["clients"] + row["dropped"] == 30 for row in found[1:])


class Clock:
    """Each look at it takes a second."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_a_resumed_run_counts_the_time_before(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes together, but for what came after the last checkpoint of each."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    monkeypatch.setattr(
        rounds_log, "time", SimpleNamespace(perf_counter=Clock(), process_time=Clock())
    )
    options = ["run", "--method", "fedmf", *sets(*SMALL, "run.rounds=6", "run.checkpoint=2")]
    assert covey(*options, "--out", whole).code == 0

    def interrupt(bar: Bar, number: int, total: int, row: dict[str, Any]) -> None:
        if number == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Bar, "update", interrupt)
        assert covey(*options, "--out", cut).code == 130
    before = rows(cut)
    assert [row["round"] for row in before] == [
        0,
        1,
        2,
        3,
        4,
    ]  # the fifth was never in a checkpoint
    assert covey("resume", cut).code == 0
    after = rows(cut)
    assert after[:5] == before
    assert untimed(cut) == untimed(whole)
    assert after[5]["elapsed"] > before[4]["elapsed"]
    # The stopwatch is read once for the enrolment, twice a round and twice at the end; the second
    # process executes only two rounds and the end.
    seconds = [
        json.loads((folder / "result.json").read_text())["seconds"] for folder in (whole, cut)
    ]
    assert seconds == [2 + 2 * 6 + 2, 2 + 2 * 4 + 2 * 2 + 2]


@pytest.mark.parametrize("clients", [0, 7])
@pytest.mark.parametrize("method", ["popularity", "ease", "mf"])
def test_a_pooled_run_tells_of_each_user(method: str, clients: int, tmp_path: Path) -> None:
    """As a federated one does, so that the two can be compared user by user."""
    changes = ["pooled.epochs=2"] if method == "mf" else []
    pooled = run(config_of(method, *changes, f"evaluate.clients={clients}"), tmp_path / "pooled")
    run(config_of("fedmf", f"evaluate.clients={clients}"), tmp_path / "federated")
    files = (tmp_path / name / "users.safetensors" for name in ("pooled", "federated"))
    mine, theirs = map(checkpoint.load_model, files)
    assert mine["clients"].equal(theirs["clients"])
    assert set(mine) == set(theirs)
    for key, value in mine.items():
        if key != "clients":
            assert value.shape == theirs[key].shape
            assert value.isnan().equal(theirs[key].isnan())
            assert float(value.nanmean()) == pytest.approx(
                pooled["test"][key.removeprefix("test/")], abs=1e-6
            )


def test_what_parts_tell_is_written_with_the_round(tmp_path: Path) -> None:
    result = run(config_of("cofedrec", "grouping.categories=4"), tmp_path / "out")
    told = [row.get("told") for row in rows(tmp_path / "out")]
    assert told[0] is None and all(
        t["co-clusters"]["participants"] == told[1]["co-clusters"]["participants"] for t in told[1:]
    )
    assert all(1 <= t["co-clusters"]["group"] <= t["co-clusters"]["participants"] for t in told[1:])
    assert result["told"] == told[result["round"]]  # of the selected round
    run(config_of("fedmf"), tmp_path / "none")
    assert not any("told" in row for row in rows(tmp_path / "none"))
