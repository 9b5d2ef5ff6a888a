"""`covey reproduce --keep`: what a stored record has is not run again, unless something is to be compared with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.study.papers.plan import WHOLE, Cut
from covey.study.papers.record import reproduce, store
from reproduce_tables import HEAD, made

ROW = '[[row]]\nlabel = "{0}"\nmethod = "fedmf"\nset = ["run.rounds={1}", "model.dim=4"]\n'
CLAIM = '[[claim]]\ntext = "{0} beats {1}"\nbetter = "{0}"\nworse = "{1}"\ncolumns = ["tiny"]\nmetrics = ["hit@10"]\n'
TWO = HEAD + ROW.format("A", 1) + ROW.format("B", 2) + CLAIM.format("B", "A")


def kept(tmp_path: Path, text: str, begin: bool = True, gone: bool = True, cut: Cut = WHOLE) -> dict[str, Any]:
    """The table with what the last record has; the runs themselves are `gone`, as on another machine."""
    if gone:
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
    table, results = made(tmp_path, text), tmp_path / "results"
    record = reproduce([table], tmp_path / "work", cut, 1, lambda line: None, begin, results)[0]
    store(record, results)
    return json.loads(json.dumps(record))


def test_a_complete_record_is_kept_as_it_is(tmp_path: Path, rounds: list[int]) -> None:
    first = kept(tmp_path, TWO)
    assert rounds == [1, 1, 1, 2, 1, 2] and first["claims"][0]["tests"][0]["p"] is not None
    rounds.clear()
    assert kept(tmp_path, TWO) == first and rounds == []


def test_a_part_takes_what_the_whole_table_has(tmp_path: Path, rounds: list[int]) -> None:
    first = kept(tmp_path, TWO)
    rounds.clear()
    part = kept(tmp_path, TWO + ROW.format("C", 3), cut=Cut(datasets=("synthetic",)))
    assert rounds == [1, 2, 3] * 2 and part["rows"][:2] == first["rows"]
    assert sorted(len(json.loads(p.read_text())["rows"]) for p in (tmp_path / "results").iterdir()) == [2, 3]


def test_a_row_that_nothing_is_compared_with_is_run_alone(tmp_path: Path, rounds: list[int]) -> None:
    first = kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3))
    assert rounds == [1, 2, 3] * 2
    assert more["rows"][:2] == first["rows"] and more["claims"] == first["claims"]


def test_a_row_that_a_new_one_is_compared_with_is_run_again(tmp_path: Path, rounds: list[int]) -> None:
    first = kept(tmp_path, TWO + ROW.format("D", 4))
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("D", 4) + ROW.format("C", 3) + CLAIM.format("C", "B"))
    assert sorted(rounds) == sorted([1] * 2 + [1, 2] * 2 + [1, 2, 3] * 2)  # A too: its test with B needs both; not D
    assert more["rows"][2] == first["rows"][2]
    one, two = more["claims"]
    number = lambda claim: claim["tests"][0]["p"]
    assert number(one) == pytest.approx(number(first["claims"][0])) and number(two) is not None


def test_one_seed_decides_nothing_so_nothing_is_run_again_for_it(tmp_path: Path, rounds: list[int]) -> None:
    single = TWO.replace("seeds = 2", "seeds = 1", 1)
    first = kept(tmp_path, single)
    rounds.clear()
    more = kept(tmp_path, single + ROW.format("C", 2).replace("dim=4", "dim=6") + CLAIM.format("C", "B"))
    assert rounds == [1, 2] and more["rows"][:2] == first["rows"] and more["claims"][0] == first["claims"][0]
    assert more["claims"][1]["reason"] == "hit@10 in tiny: one seed says nothing about spread"


def test_holm_counts_kept_tests(tmp_path: Path, rounds: list[int]) -> None:
    both = TWO + ROW.format("C", 3) + ROW.format("D", 4)
    first = kept(tmp_path, both)
    rounds.clear()
    more = kept(tmp_path, both + CLAIM.format("D", "C"))
    assert sorted(rounds) == sorted([1, 2, 3] * 2 + [1, 2, 3, 4] * 2)
    old, new = first["claims"][0]["tests"][0], more["claims"][0]["tests"][0]
    assert all(new[k] == old[k] for k in ("difference", "low", "high", "p", "users", "seeds"))
    p = sorted(claim["tests"][0]["p"] for claim in more["claims"])
    assert min(claim["tests"][0]["p_holm"] for claim in more["claims"]) == pytest.approx(min(1.0, 2 * p[0]))


@pytest.mark.parametrize(
    "change",
    [
        ("run.rounds=2", "run.rounds=1"),
        ("seeds = 2", "seeds = 3"),
        (', "ndcg@10"]', "]"),
    ],
)
def test_other_settings_seeds_or_metrics_are_run(tmp_path: Path, rounds: list[int], change: tuple[str, str]) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    kept(tmp_path, TWO.replace(*change, 1))
    assert rounds


def test_what_is_missing_stays_a_hole_where_nothing_is_to_be_run(tmp_path: Path, rounds: list[int]) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3), begin=False)
    assert rounds == [] and [bool(row["cells"]["tiny"]["figures"]) for row in more["rows"]] == [True, True, False]


def test_nothing_is_lost_where_nothing_is_to_be_run(tmp_path: Path, rounds: list[int]) -> None:
    """C is compared with B, whose test with A stays; the new one has to wait for runs."""
    first = kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3) + CLAIM.format("C", "B"), begin=False)
    assert rounds == [] and more["rows"][:2] == first["rows"]
    same, other = (claim["tests"][0] for claim in more["claims"])
    assert same["p"] == first["claims"][0]["tests"][0]["p"] and other["p"] is None
    assert other["reason"].startswith("runs are missing: C has none")


def test_runs_at_hand_are_compared_although_a_record_has_them(tmp_path: Path, rounds: list[int]) -> None:
    """B was run again with C here; A was not, so that its test with B stays that of the record."""
    first = kept(tmp_path, TWO)
    only = HEAD + ROW.format("B", 2) + ROW.format("C", 3) + CLAIM.format("C", "B")
    reproduce([made(tmp_path, only)], tmp_path / "work", WHOLE, 1, lambda line: None)
    for config in list((tmp_path / "work").glob("*/config.toml")):
        if "rounds = 1\n" in config.read_text():
            shutil.rmtree(config.parent)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3) + CLAIM.format("C", "B"), begin=False, gone=False)
    assert rounds == [] and more["rows"][0] == first["rows"][0]
    same, other = (claim["tests"][0] for claim in more["claims"])
    assert same["p"] == first["claims"][0]["tests"][0]["p"] and other["p"] is not None


def test_a_paper_s_number_may_change_without_a_run(tmp_path: Path, rounds: list[int]) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO.replace("[[claim]]", '[row.paper]\ntiny = { "hit@10" = 0.2 }\n[[claim]]', 1))
    assert rounds == [] and more["rows"][1]["cells"]["tiny"]["paper"] == {"hit@10": 0.2}
