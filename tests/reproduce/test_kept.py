"""`covey reproduce --keep`: stored cells are not run again unless a test needs their runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey.study.papers.plan import WHOLE, Scope
from covey.study.papers.record import reproduce, store
from reproduce_tables import HEAD, made

ROW = (
    '[[row]]\nlabel = "{0}"\nmethod = "fedmf"\n'
    'set = ["run.rounds={1}", "model.dim=4", "model.scale=0.1"]\n'
)
CLAIM = (
    '[[claim]]\ntext = "{0} beats {1}"\nbetter = "{0}"\nworse = "{1}"\n'
    'columns = ["tiny"]\nmetrics = ["hit@10"]\n'
)
TWO = HEAD + ROW.format("A", 1) + ROW.format("B", 2) + CLAIM.format("B", "A")


def kept(
    tmp_path: Path, text: str, begin: bool = True, gone: bool = True, scope: Scope = WHOLE
) -> dict[str, Any]:
    """Make the table from the last record; its runs are `gone`, as on another machine."""
    if gone:
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
    table, results = made(tmp_path, text), tmp_path / "results"
    record = reproduce([table], tmp_path / "work", scope, 1, lambda line: None, begin, results)[0]
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
    part = kept(tmp_path, TWO + ROW.format("C", 3), scope=Scope(datasets=("synthetic",)))
    assert rounds == [1, 2, 3] * 2 and part["rows"][:2] == first["rows"]
    assert sorted(
        len(json.loads(p.read_text())["rows"]) for p in (tmp_path / "results").iterdir()
    ) == [2, 3]


def test_a_row_that_nothing_is_compared_with_is_run_alone(
    tmp_path: Path, rounds: list[int]
) -> None:
    first = kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3))
    assert rounds == [1, 2, 3] * 2
    assert more["rows"][:2] == first["rows"] and more["claims"] == first["claims"]


def test_a_row_that_a_new_one_is_compared_with_is_run_again(
    tmp_path: Path, rounds: list[int]
) -> None:
    first = kept(tmp_path, TWO + ROW.format("D", 4))
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("D", 4) + ROW.format("C", 3) + CLAIM.format("C", "B"))
    assert sorted(rounds) == sorted(
        [1] * 2 + [1, 2] * 2 + [1, 2, 3] * 2
    )  # A too: its test with B needs both; not D
    assert more["rows"][2] == first["rows"][2]
    _, two = more["claims"]
    before, after = (made["claims"][0]["tests"][0]["p"] for made in (first, more))
    assert after == pytest.approx(before) and two["tests"][0]["p"] is not None


def test_an_older_arithmetic_is_kept_and_compared_with_no_newer_one(
    tmp_path: Path, rounds: list[int]
) -> None:
    """Where one side of a comparison is run again, so is the other."""
    first = kept(tmp_path, TWO + ROW.format("D", 4))
    (file,) = (tmp_path / "results").iterdir()
    record = json.loads(file.read_text())
    for row in record["rows"]:
        for cell in row["cells"].values():
            cell["arithmetic"] = 1
    file.write_text(json.dumps(record, indent=1) + "\n")
    rounds.clear()
    again = kept(tmp_path, TWO + ROW.format("D", 4))
    assert not rounds and [row["cells"] for row in again["rows"]] == [
        row["cells"] for row in record["rows"]
    ]
    more = kept(tmp_path, TWO + ROW.format("D", 4) + ROW.format("C", 3) + CLAIM.format("C", "B"))
    versions = {
        row["label"]: {cell["arithmetic"] for cell in row["cells"].values()} for row in more["rows"]
    }
    assert versions == {"A": {2}, "B": {2}, "C": {2}, "D": {1}}
    assert [row["label"] for row in first["rows"]] == ["A", "B", "D"]


def test_one_seed_decides_nothing_so_nothing_is_run_again_for_it(
    tmp_path: Path, rounds: list[int]
) -> None:
    single = TWO.replace("seeds = 2", "seeds = 1", 1)
    first = kept(tmp_path, single)
    rounds.clear()
    more = kept(
        tmp_path, single + ROW.format("C", 2).replace("dim=4", "dim=6") + CLAIM.format("C", "B")
    )
    assert (
        rounds == [1, 2]
        and more["rows"][:2] == first["rows"]
        and more["claims"][0] == first["claims"][0]
    )
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
    assert min(claim["tests"][0]["p_holm"] for claim in more["claims"]) == pytest.approx(
        min(1.0, 2 * p[0])
    )


@pytest.mark.parametrize(
    "change", [("run.rounds=2", "run.rounds=1"), ("seeds = 2", "seeds = 3"), (', "ndcg@10"]', "]")]
)
def test_other_settings_seeds_or_metrics_are_run(
    tmp_path: Path, rounds: list[int], change: tuple[str, str]
) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    kept(tmp_path, TWO.replace(*change, 1))
    assert rounds


def test_what_is_missing_stays_a_hole_where_nothing_is_to_be_run(
    tmp_path: Path, rounds: list[int]
) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3), begin=False)
    assert rounds == [] and [bool(row["cells"]["tiny"]["figures"]) for row in more["rows"]] == [
        True,
        True,
        False,
    ]


def test_nothing_is_lost_where_nothing_is_to_be_run(tmp_path: Path, rounds: list[int]) -> None:
    """C is compared with B, whose test with A stays; the new one has to wait for runs."""
    first = kept(tmp_path, TWO)
    rounds.clear()
    more = kept(tmp_path, TWO + ROW.format("C", 3) + CLAIM.format("C", "B"), begin=False)
    assert rounds == [] and more["rows"][:2] == first["rows"]
    same, other = (claim["tests"][0] for claim in more["claims"])
    assert same["p"] == first["claims"][0]["tests"][0]["p"] and other["p"] is None
    assert other["reason"].startswith("runs are missing: C has none")


def test_runs_at_hand_are_compared_although_a_record_has_them(
    tmp_path: Path, rounds: list[int]
) -> None:
    """B was run again with C here; A was not, so that its test with B stays that of the record."""
    first = kept(tmp_path, TWO)
    only = HEAD + ROW.format("B", 2) + ROW.format("C", 3) + CLAIM.format("C", "B")
    reproduce([made(tmp_path, only)], tmp_path / "work", WHOLE, 1, lambda line: None)
    for config in list((tmp_path / "work").glob("*/config.toml")):
        if "rounds = 1\n" in config.read_text():
            shutil.rmtree(config.parent)
    rounds.clear()
    more = kept(
        tmp_path, TWO + ROW.format("C", 3) + CLAIM.format("C", "B"), begin=False, gone=False
    )
    assert rounds == [] and more["rows"][0] == first["rows"][0]
    same, other = (claim["tests"][0] for claim in more["claims"])
    assert same["p"] == first["claims"][0]["tests"][0]["p"] and other["p"] is not None


def test_a_paper_s_number_may_change_without_a_run(tmp_path: Path, rounds: list[int]) -> None:
    kept(tmp_path, TWO)
    rounds.clear()
    more = kept(
        tmp_path, TWO.replace("[[claim]]", '[row.paper]\ntiny = { "hit@10" = 0.2 }\n[[claim]]', 1)
    )
    assert rounds == [] and more["rows"][1]["cells"]["tiny"]["paper"] == {"hit@10": 0.2}


# A has trials of tuning and B has none, so their test has figures but no verdict.
UNEQUAL = TWO.replace('label = "A"\n', 'label = "A"\ntrials = 12\n', 1)


def stored(tmp_path: Path) -> Path:
    return tmp_path / "results" / "own-two.json"


def older(tmp_path: Path) -> bytes:
    """Writes the stored record as the first versions did, without the keys that came later."""
    record = json.loads(stored(tmp_path).read_text())
    for key in ("part", "told", "ends", "course"):
        del record[key]
    for row in record["rows"]:
        del row["lowest"]
    for claim in record["claims"]:
        for test in claim["tests"]:
            for key in ("users", "dropped", "seeds"):
                del test[key]
    record["command"] = "an older command"
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    stored(tmp_path).write_text(text)
    return text.encode()


def test_a_record_of_the_first_version_is_left_as_it_is(tmp_path: Path, rounds: list[int]) -> None:
    test = kept(tmp_path, UNEQUAL)["claims"][0]["tests"][0]
    assert test["reason"].startswith("tuning budgets differ") and test["p"] is not None
    before = older(tmp_path)
    rounds.clear()
    for begin in (False, True):
        kept(tmp_path, UNEQUAL, begin=begin)
        assert rounds == [] and stored(tmp_path).read_bytes() == before


def test_a_test_of_the_first_version_outlives_a_new_row(tmp_path: Path, rounds: list[int]) -> None:
    first = kept(tmp_path, UNEQUAL)["claims"][0]["tests"][0]
    older(tmp_path)
    more = kept(tmp_path, UNEQUAL + ROW.format("C", 3), begin=False)
    unknown = {"users": 0, "dropped": 0, "seeds": 2}
    assert more["claims"][0]["tests"][0] == first | unknown
    assert json.loads(stored(tmp_path).read_text()) == more


def test_a_reason_why_nothing_was_compared_is_kept_while_it_is_true(
    tmp_path: Path, rounds: list[int]
) -> None:
    single = TWO.replace("seeds = 2", "seeds = 1", 1).replace(
        "rounds=2", "rounds=1", 1
    )  # equal work
    record = kept(tmp_path, single)
    why = "as an older version said it"
    record["claims"][0] |= {"reason": f"hit@10 in tiny: {why}"}
    record["claims"][0]["tests"][0] |= {
        **dict.fromkeys(("difference", "low", "high", "p", "p_holm")),
        **dict.fromkeys(("users", "dropped", "seeds"), 0),
        "reason": why,
    }
    store(record, tmp_path / "results")
    before = stored(tmp_path).read_bytes()
    kept(tmp_path, single, begin=False)
    assert stored(tmp_path).read_bytes() == before
    budgets = single.replace('label = "A"\n', 'label = "A"\ntrials = 12\n', 1)
    reason = kept(tmp_path, budgets, begin=False)["claims"][0]["tests"][0]["reason"]
    assert reason.startswith("tuning budgets differ")


@pytest.mark.parametrize("change", [("run.rounds=2", "run.rounds=3"), ("seeds = 2", "seeds = 3")])
def test_a_changed_plan_loses_nothing_where_nothing_is_to_be_run(
    tmp_path: Path, rounds: list[int], change: tuple[str, str]
) -> None:
    """The cell keeps the settings that it was made with, until its runs are at hand."""
    kept(tmp_path, TWO)
    before = stored(tmp_path).read_bytes()
    changed, said = TWO.replace(*change, 1), []
    shutil.rmtree(tmp_path / "work")
    table, results = made(tmp_path, changed), tmp_path / "results"
    more = reproduce([table], tmp_path / "work", WHOLE, 1, said.append, False, results)[0]
    store(more, results)
    assert stored(tmp_path).read_bytes() == before
    line = "own two: B in tiny is kept as stored; the plan now has other settings"
    assert line in "\n".join(said)
    reproduce([table], tmp_path / "work", WHOLE, 1, lambda line: None)
    rounds.clear()
    new = kept(tmp_path, changed, begin=False, gone=False)
    cell, old = (record["rows"][1]["cells"]["tiny"] for record in (new, more))
    assert rounds == [] and cell["figures"] != old["figures"]
    assert new["claims"][0]["tests"][0]["difference"] != more["claims"][0]["tests"][0]["difference"]


def test_figures_of_the_whole_are_not_those_of_a_changed_option(
    tmp_path: Path, rounds: list[int]
) -> None:
    kept(tmp_path, TWO)
    shutil.rmtree(tmp_path / "work")
    for scope in (Scope(set=("model.dim=6",)), Scope(quick=True)):
        table, results = made(tmp_path, TWO), tmp_path / "results"
        said = reproduce([table], tmp_path / "work", scope, 1, lambda line: None, False, results)[0]
        assert not said["rows"][1]["cells"]["tiny"]["figures"]


def test_a_method_with_a_new_title_is_not_run_again(tmp_path: Path, rounds: list[int]) -> None:
    record = kept(tmp_path, TWO)
    for row in record["rows"]:
        row["cells"]["tiny"]["config"] |= {"title": "An older title", "paper": "An older reference"}
    store(record, tmp_path / "results")
    rounds.clear()
    assert kept(tmp_path, TWO) == record and rounds == []


def test_other_metrics_lose_nothing_where_nothing_is_to_be_run(
    tmp_path: Path, rounds: list[int]
) -> None:
    first = kept(tmp_path, TWO)
    more = kept(tmp_path, TWO.replace(', "ndcg@10"]', "]", 1), begin=False)
    assert more["rows"] == first["rows"] and more["claims"] == first["claims"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rows": 1, "claims": 2}'])
def test_what_is_no_record_is_written_over(tmp_path: Path, rounds: list[int], text: str) -> None:
    record = kept(tmp_path, TWO)
    stored(tmp_path).write_text(text)
    store(record, tmp_path / "results")
    assert json.loads(stored(tmp_path).read_text()) == record
