"""Verdicts on claims: what holds, fails and is not decided, and why."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from covey.study.papers.claims import Claim, judge

Array = NDArray[np.float64]


def _cell(**other: Any) -> dict[str, Any]:
    return {"seeds": [0, 1, 2, 3, 4], "errors": [], "work": 100.0, "tuned": 20, **other}


class Planted:
    """A table of three rows and two columns: A is better than B, and C equals B."""

    def __init__(self, **cells: dict[str, Any]) -> None:
        rng = np.random.default_rng(10)
        self.cells = {row: _cell() for row in "ABC"} | cells
        b_SU, c_SU, better_SU = (
            rng.random((5, 100)),
            rng.random((5, 100)),
            rng.random((5, 100)) * 0.2 + 0.2,
        )
        self.figures: dict[str, Array] = {"A": b_SU + better_SU, "B": b_SU, "C": c_SU}

    def cell(self, row: str, column: str) -> dict[str, Any] | None:
        return self.cells[row] if column in ("one", "two") else None

    def users(self, row: str, column: str, metric: str) -> Array | None:
        return self.figures.get(row)

    def judge(self, *claims: Claim) -> list[dict[str, Any]]:
        return judge(claims, self.cell, self.users)


def _claim(better: str, worse: str, columns: tuple[str, ...] = ("one",), **other: Any) -> Claim:
    return Claim(f"{better} beats {worse}", better, worse, columns, ("ndcg@10",), **other)


def test_verdicts() -> None:
    holds, fails, open_ = Planted().judge(_claim("A", "B"), _claim("B", "A"), _claim("C", "B"))
    assert [c["verdict"] for c in (holds, fails, open_)] == ["holds", "fails", "not decided"]
    assert holds["text"] == "A beats B"
    (test,) = holds["tests"]
    assert list(test) == [
        "better", "worse", "column", "against", "metric", "difference", "low", "high", "p",
        "p_holm", "users", "dropped", "seeds", "verdict", "reason",
    ]  # fmt: skip
    assert (test["column"], test["against"], test["verdict"]) == ("one", "one", "holds")
    assert test["difference"] == pytest.approx(0.3, abs=0.02)
    assert test["p_holm"] == 3 * test["p"]
    assert "100 users and 5 seeds" in holds["reason"] and "3 tests" in holds["reason"]


def test_a_claim_of_several_tests() -> None:
    table = Planted()
    assert table.judge(_claim("A", "B", ("one", "two")))[0]["verdict"] == "holds"
    (half,) = table.judge(_claim("A", "B", ("one", "three")))
    assert half["verdict"] == "not decided"
    assert (
        half["reason"] == "1 of 2 tests; ndcg@10 in three: runs are missing: A was not run in three"
    )
    assert half["tests"][0]["verdict"] == "holds" and half["tests"][1]["difference"] is None
    assert table.judge(_claim("B", "A", ("three", "one")))[0]["verdict"] == "fails"


def test_a_claim_between_columns() -> None:
    (found,) = Planted().judge(_claim("A", "B", against="two"))
    assert found["tests"][0]["against"] == "two" and found["verdict"] == "holds"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (_cell(work=111.0), "local work differs: 100 epochs per client for A, 111 for B"),
        (_cell(tuned=0), "tuning budgets differ: 20 trials for A, 0 for B"),
        (
            _cell(errors=[{"seed": 3, "error": "no memory"}]),
            "runs are missing: B has none with seed 3",
        ),
        (_cell(seeds=[0, 1, 2]), "runs are missing: A has seeds [0, 1, 2, 3, 4], B [0, 1, 2]"),
    ],
)
def test_an_unfair_comparison_is_not_decided(cell: dict[str, Any], reason: str) -> None:
    (found,) = Planted(B=cell).judge(_claim("A", "B"))
    assert found["verdict"] == "not decided"
    assert found["tests"][0]["reason"] == reason
    assert found["tests"][0]["p"] < 0.05  # it would have been


def test_what_is_fair() -> None:
    assert Planted(B=_cell(work=110.0)).judge(_claim("A", "B"))[0]["verdict"] == "holds"
    (pooled,) = Planted(B=_cell(work=None)).judge(_claim("A", "B"))
    assert pooled["verdict"] == "holds" and "B: nothing is trained on devices" in pooled["reason"]
    (fixed,) = Planted(B=_cell(tuned=None)).judge(_claim("A", "B"))
    assert fixed["verdict"] == "holds" and "B: nothing to tune" in fixed["reason"]


def test_figures_that_cannot_be_paired() -> None:
    table = Planted()
    table.figures["B"] = table.figures["B"][:3]
    assert (
        "5 seeds of 100 users and 3 seeds of 100 users"
        in table.judge(_claim("A", "B"))[0]["reason"]
    )
    del table.figures["B"]
    assert "B has no ndcg@10 of single users" in table.judge(_claim("A", "B"))[0]["reason"]
    table = Planted()
    table.figures = {row: figures[:1] for row, figures in table.figures.items()}
    (found,) = table.judge(_claim("A", "B"))
    assert (
        found["verdict"] == "not decided"
        and "one seed says nothing about spread" in found["reason"]
    )
    assert found["tests"][0]["difference"] > 0 and found["tests"][0]["p_holm"] is None


def test_a_failed_run_does_not_help_the_others() -> None:
    """The correction counts the tests that were claimed, not those that could be made."""
    alone, beside = Planted().judge(_claim("A", "B"), _claim("A", "C", ("three",)))
    assert beside["tests"][0]["p_holm"] is None
    assert alone["tests"][0]["p_holm"] == 2 * alone["tests"][0]["p"]


def test_one_seed_as_planned_is_no_test_but_one_of_several_is() -> None:
    table = Planted()

    def users(row: str, column: str, metric: str) -> Any:
        return table.figures[row][: 1 if column == "two" else 5]

    lost = {"seeds": [0], "errors": [{"seed": 1, "error": "stopped"}]}
    for cells, tests in (({"seeds": [0]}, 1), (lost, 2)):

        def cell(row: str, column: str, cells: dict[str, Any] = cells) -> Any:
            return _cell(**cells) if column == "two" else _cell()

        many, one = judge([_claim("A", "B"), _claim("A", "B", ("two",))], cell, users)
        assert one["tests"][0]["p_holm"] is None and one["verdict"] == "not decided"
        assert many["tests"][0]["p_holm"] == tests * many["tests"][0]["p"]


def test_no_claims() -> None:
    assert Planted().judge() == []
    assert Planted().judge(Claim("nothing", "A", "B", (), ()))[0]["verdict"] == "not decided"
