"""The privacy ledger: totals over items and messages, computed by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from covey.contract.ledger import INFINITE, Disclosure, Ledger, counts_given
from covey.core.errors import CoveyError
from covey.run.assemble import prepare
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import assign
from covey.run.loop import run

LIST = Disclosure("enrol", "contribution/list", "a perturbed list", 5.0, "item")
VECTOR = Disclosure("report", "fedcl/user", "a noisy vector", 4.0)
UPDATE = Disclosure("train", "update/items", "an update in clear")
ROWS = Disclosure("train", "own/rows", "rows in clear", INFINITE, "item")
KEYS = [(d.step, d.name) for d in (LIST, VECTOR, UPDATE, ROWS)]


def ledger(sends: tuple[int, ...], longest: int = 30) -> Ledger:
    made = Ledger.of([LIST, VECTOR, UPDATE, ROWS], longest)
    made.sends = {key: times for key, times in zip(KEYS, sends, strict=True) if times}
    made.bytes = {key: 100 * times for key, times in made.sends.items()}
    return made


@pytest.mark.parametrize(
    ("sends", "longest", "totals"),
    [
        ((1, 20, 40, 2), 30, (150.0, 80.0, INFINITE, INFINITE)),  # 5 x 30 items; 4 x 20 messages
        ((2, 1, 1, 1), 30, (300.0, 4.0, INFINITE, INFINITE)),  # a list sent twice is spent twice
        ((1, 1, 1, 1), 0, (0.0, 4.0, INFINITE, INFINITE)),  # no user has an item
        (
            (0, 0, 0, 0),
            30,
            (0.0, 0.0, 0.0, 0.0),
        ),  # fields that are not sent spend nothing, even if unprotected
    ],
)
def test_totals_by_hand(sends: tuple[int, ...], longest: int, totals: tuple[float, ...]) -> None:
    made = ledger(sends, longest)
    assert tuple(made.spent(key) for key in KEYS) == totals


def test_the_table_has_what_was_sent() -> None:
    rows = ledger((1, 0, 7, 0)).table()
    assert rows == [
        {
            "step": "enrol",
            "field": "contribution/list",
            "what": "a perturbed list",
            "bytes": 100,
            "messages_per_user": 1,
            "epsilon": 5.0,
            "delta": 0.0,
            "unit": "item",
            "epsilon_message": 150.0,
            "epsilon_user_total": 150.0,
        },
        {
            "step": "train",
            "field": "update/items",
            "what": "an update in clear",
            "bytes": 700,
            "messages_per_user": 7,
            "epsilon": "none",
            "delta": 0.0,
            "unit": "message",
            "epsilon_message": "none",
            "epsilon_user_total": "none",
        },
    ]
    assert "Infinity" not in json.dumps(rows)


def test_what_nobody_declared_is_found() -> None:
    assert ledger((1, 1, 1, 1)).undeclared([*KEYS, ("train", "z"), ("train", "a")]) == [
        ("train", "a"),
        ("train", "z"),
    ]


def test_what_a_field_tells_beside_its_content_goes_with_it() -> None:
    made = Ledger.of([LIST, Disclosure("enrol", "contribution/list/length", "how many")], 30)
    assert made.table() == []
    made.sends = {("enrol", "contribution/list"): 2}
    assert [
        (r["field"], r["messages_per_user"], r["epsilon_user_total"]) for r in made.table()
    ] == [("contribution/list", 2, 300.0), ("contribution/list/length", 2, "none")]


def test_what_the_server_is_given_is_disclosed_though_nobody_sends_it() -> None:
    made = Ledger.of([VECTOR, counts_given("fedcl")])
    made.sends = {("report", "fedcl/user"): 2}
    report, counts = made.table()
    assert (report["field"], report["epsilon_user_total"]) == ("fedcl/user", 8.0)
    assert (counts["field"], counts["messages_per_user"], counts["bytes"]) == ("fedcl/counts", 1, 0)
    assert counts["epsilon_user_total"] == "none"
    assert made.summary()["unprotected"] == ["enrol fedcl/counts"]


def test_the_total_of_a_user_is_a_sum() -> None:
    """30 items at 5; 20 reports at 4, 3 of them new; 7 uploads of two fields that share 0.5."""
    report = replace(VECTOR, releases=3)
    parts = [
        Disclosure("train", f"update/{k}", "noisy", 0.5, delta=1e-7, budget="noise")
        for k in ("a", "b")
    ]
    rows = Disclosure("train", "update/c", "noisy rows", 0.1, "row")
    study = Disclosure("evaluate", "evaluate/x", "a figure")
    made = Ledger.of([LIST, report, *parts, rows, study], 30)
    made.sends = {
        (d.step, d.name): n
        for d, n in zip([LIST, report, *parts, rows, study], (1, 20, 7, 7, 7, 9), strict=True)
    }
    made.rows = {"update/c": 10}
    owed = made.summary()
    assert owed["epsilon_item"] == 5.0
    assert owed["epsilon_enrolment"] == 5.0 * 30
    assert owed["epsilon_report"] == 4.0
    assert owed["epsilon_round"] == pytest.approx(4.0 + 0.5 + 10 * 0.1)
    assert owed["epsilon_user"] == pytest.approx(5 * 30 + 4 * 3 + 0.5 * 7 + 0.1 * 10 * 7)
    assert owed["delta_user"] == pytest.approx(7e-7)
    assert owed["unprotected"] == [] and owed["accountant"] is None
    assert "Infinity" not in json.dumps(owed)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_a_budget_is_over_zero(epsilon: float) -> None:
    with pytest.raises(CoveyError, match="a privacy budget is over 0"):
        Disclosure("report", "x/user", "a vector", epsilon)


SMALL = [
    "data.users=30",
    "data.items=60",
    "data.mean_items=8",
    "run.cohort=10",
    "run.rounds=3",
    "run.ceilings=[]",
]


def rows_of(
    name: str, out: Path, *changes: str
) -> tuple[Config, dict[tuple[str, str], dict[str, Any]]]:
    config = Config.of(assign(read("methods", name), [*SMALL, "model.dim=4", *changes]))
    return config, {(r["step"], r["field"]): r for r in run(config, out)["ledger"]}


def test_fedcl_spends_per_pass(tmp_path: Path) -> None:
    """Clients report once per pass: 3 passes at 4 each. Updates are unprotected, once a pass."""
    _, rows = rows_of("fedcl", tmp_path / "out")
    report, update = rows["report", "fedcl/user"], rows["train", "update/items"]
    assert (report["messages_per_user"], report["epsilon_user_total"]) == (3, 12.0)
    assert (update["messages_per_user"], update["epsilon_user_total"]) == (3, "none")


def test_pdc_frs_spends_per_item_once(tmp_path: Path) -> None:
    """5 for each item of the longest list, sent at enrolment only, also by late joiners."""
    config, rows = rows_of("pdc-frs", tmp_path / "out", "run.late=0.3")
    longest = int(prepare(config).split.train.lengths.max())
    said = rows["enrol", "contribution/list"]
    assert said["messages_per_user"] == 1
    assert said["epsilon_user_total"] == 5.0 * longest
    assert longest > 8


def test_the_total_is_the_worst_clients(tmp_path: Path) -> None:
    """Of three samples of a third each, the client that was drawn most often."""
    config, rows = rows_of("fedmf", tmp_path / "out", 'run.schedule="sample"', 'run.unit="round"')
    drawn = rows["train", "update/items"]["messages_per_user"]
    assert config.run.rounds == 3
    assert 2 <= drawn <= 3
