"""Records as Markdown and in a terminal: nothing is lost, nothing is too wide, labels stay text."""

import re
from typing import Any

import pytest
from rich.cells import cell_len

from covey.core.fixed_point import ARITHMETIC
from covey.study.papers.terminal import markdown, terminal
from covey.study.render.units import STALE, duration, plain, span
from report_runs import EVIL
from reproduce_records import HONEST, PUBLISHED, cell, column, failed, figure, table


def grid(text: str, first: str) -> list[list[str]]:
    """The cells of the Markdown table whose head begins so."""
    block = next(part for part in text.split("\n\n") if part.startswith(f"| {first} |"))
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]


def one(record: dict[str, Any], label: str) -> dict[str, Any]:
    return next(row for row in record["rows"] if row["label"] == label)


def test_the_paper_stands_beside_ours() -> None:
    head, _, *rows = grid(markdown(table()), "ndcg@10")
    assert head == [
        "ndcg@10",
        f"{PUBLISHED}: paper",
        f"{PUBLISHED}: ours",
        HONEST,
    ]  # the paper has no honest figures
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["PFedRec"] == ["0.3912", "0.3752 ± 0.0032", "0.2912 ± 0.0032"]
    assert by_name["popularity (floor)"] == ["–", "0.2576 ± 0.0032", "0.1736 ± 0.0032"]
    assert by_name["local (control)"] == ["–", "–", "0.2016 ± 0.0032"]  # not run as published
    assert len(rows) == 8 and all(len(row) == 4 for row in rows)


def test_holes_and_impossible_figures_are_told() -> None:
    text = markdown(table())
    rows = {row[0]: row for row in grid(text, "hit@10")}
    assert rows["FedNCF"][3] == "failed: the loss is not finite in round 3; lower solver.lr"
    assert rows["FedFast"][1] == "0.3400 ✗1"
    assert f"- ✗1 FedFast, {PUBLISHED}: ndcg@10 0.3520 is above hit@10 0.3400" in text
    assert "seed 3 failed: out of memory" in text
    costs = {(row[0], row[1]): row[2:] for row in grid(text, "")}
    assert costs["PFedRec", HONEST] == ["5", "70 to 90", "100", "20", "131 kB", "249 kB", "61.2"]
    assert costs["FedNCF", HONEST] == ["0 of 5", *["–"] * 6]
    assert ["4 of 5"] in [
        figures[:1] for (name, _), figures in costs.items() if name.startswith("FedMF")
    ]


def test_claims_and_origin_are_told() -> None:
    text = markdown(table())
    assert (
        "- **holds** PFedRec beats FedMF on ML-100K: in all of 2 metrics, p at most 0.0001" in text
    )
    assert "- **not decided** PFedRec beats FedNCF: the runs of FedNCF failed" in text
    assert text.endswith(
        "`covey reproduce pfedrec table2`, commit abc1234, x86_64 CPU, torch 2.11.0."
        " Stale: made by an older arithmetic, with other last digits of sums: all federated rows."
    )


def test_cells_of_an_older_arithmetic_are_marked() -> None:
    record = table()
    cells = [cell for row in record["rows"] for cell in row["cells"].values()]
    for made in cells:
        made["arithmetic"] = ARITHMETIC
    assert "Stale" not in markdown(record)
    one(record, "PFedRec")["cells"][HONEST]["arithmetic"] = ARITHMETIC - 1
    del one(record, "local")["cells"][HONEST]["arithmetic"]  # before versions were counted
    one(record, "EASE, pooled")["cells"][HONEST].update(arithmetic=1, config={"pooled": {}})
    last = markdown(record).splitlines()[-1]
    marked = f"local, {HONEST}; PFedRec, {HONEST}."
    assert last.endswith((f"{STALE}: {marked}", f"{STALE}: PFedRec, {HONEST}; local, {HONEST}."))


@pytest.mark.parametrize("show", [markdown, terminal])
def test_quick_is_loud(show: Any) -> None:
    assert "QUICK" in "\n".join(show(table(quick=True)).splitlines()[:3])
    assert "QUICK" not in show(table())


def test_labels_stay_text_in_markdown() -> None:
    record = table()
    record["rows"][0]["label"] = "a|b\n*c* `d` [e](f)"
    text = markdown(record)
    assert "<script" not in text and "<img" not in text
    assert r"| a\|b \*c\* \`d\` \[e\](f) (floor) |" in text


def test_a_sweep_is_a_table_of_each_panel() -> None:
    text = markdown(figure())
    head, _, *rows = grid(text, "hit@10, ML-100K")
    assert head[1:] == ["ε=1", "ε=2", "ε=4", "ε=8", "ε=16"]
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["FedMF"][2] == "failed: it was killed"
    assert by_name["PFedRec, the paper"] == ["0.5500", "0.5620", "0.5740", "0.5860 ✗1", "0.5980"]
    assert "FedMF, the paper" not in {row[0] for row in grid(text, "ndcg@10, ML-1M")}


def wide() -> dict[str, Any]:
    """Long names, many metrics, figures above one, a sweep of long values."""
    record = table()
    record["rows"][5]["label"] = (
        "A method with a name that is longer than any table has room for, and more"
    )
    record["columns"][0]["label"] = long = "A dataset with a long name, " * 4
    for row in record["rows"]:
        if PUBLISHED in row["cells"]:
            row["cells"][long] = row["cells"].pop(PUBLISHED)
    record["machine"] = "machine-" * 20
    return many_metrics(record)


def many_metrics(record: dict[str, Any]) -> dict[str, Any]:
    for row in record["rows"]:
        for found in row["cells"].values():
            for key in ("paper", "figures", "mean", "spread"):
                found[key] |= {
                    f"hit@{k}": found[key]["hit@10"] for k in (5, 20, 50, 100, 200) if found[key]
                }
    return record | {"metrics": ["hit@10", "ndcg@10", *(f"hit@{k}" for k in (5, 20, 50, 100, 200))]}


def long_sweep() -> dict[str, Any]:
    """Nine values in one panel."""
    record = figure()
    columns = [
        one | {"panel": "ML", "x": 0.001 * (i + 1)} for i, one in enumerate(record["columns"])
    ]
    return record | {"columns": columns}


@pytest.mark.parametrize("make", [table, figure, wide, long_sweep])
def test_a_terminal_of_80_columns_is_enough(make: Any) -> None:
    text = terminal(make())
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    assert "…" not in text  # nothing was cut off either


def test_a_terminal_shows_each_column_by_itself() -> None:
    text = terminal(table())
    published, honest = text.index(f"\n{PUBLISHED}\n"), text.index(f"\n{HONEST}\n")
    assert re.search(
        r"PFedRec +0\.6900 +0\.6700±\.0032 +0\.3912 +0\.3752±\.0032\n", text[published:honest]
    )
    assert re.search(r"PFedRec +0\.5200±\.0032 +0\.2912±\.0032\n", text[honest:])
    assert re.search(r"FedNCF +failed +failed\n", text[honest:])
    assert "✗1 the paper's figures are impossible: FedFast" in text
    assert "HOLDS PFedRec beats FedMF" in text and "NOT DECIDED PFedRec beats FedNCF" in text
    assert EVIL[:9] in text  # as it is: a terminal runs no scripts


def test_what_a_terminal_would_obey_is_left_out() -> None:
    record = table()
    record["rows"][0]["label"] = "red\x1b[31m\nalert\x07"
    record["claims"][0]["reason"] = "\x1b]0;title\x07"
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", terminal(record))
    assert plain("a\n\tb\x1b[0m") == "a b [0m"


def test_a_table_where_everything_failed() -> None:
    record = table()
    record |= {"commit": "", "machine": "", "about": "", "claims": []}
    for row in record["rows"]:
        row["cells"] = {HONEST: failed("no such dataset")}
    record["columns"] = [column(HONEST)]
    for text in (markdown(record), terminal(record)):
        assert "failed: no such dataset" in text and "every run failed" in text
        assert "()" not in text and "Claims" not in text


def test_a_table_where_nothing_was_tried() -> None:
    record = table() | {
        "commit": "",
        "machine": "",
        "about": "",
        "claims": [],
        "columns": [column(HONEST)],
    }
    for row in record["rows"]:
        row["cells"] = {HONEST: failed("not run yet")}
    assert "no machine: not run yet" in markdown(record) and "failed" not in markdown(record)


def test_one_seed_has_no_spread() -> None:
    record = table()
    one(record, "PFedRec")["cells"][HONEST] = cell(0.5, seeds=1)
    assert {row[0]: row for row in grid(markdown(record), "hit@10")}["PFedRec"][3] == "0.5000"


def test_spans_and_durations() -> None:
    assert [span(v, str) for v in ([], [3], [5, 2, 5])] == ["–", "3", "2 to 5"]
    assert [duration(s) for s in (0.0123, 61.23, 12345.6)] == ["0.0123", "61.2", "12,346"]


def test_what_parts_told_stands_beside_the_figures() -> None:
    record = table()
    (first, *_) = record["rows"][0]["cells"].values()
    first["told"] = [{"co-clusters": {"group": 7.0}}, {"co-clusters": {"group": 839.0}}]
    for shown in (markdown(record), terminal(record)):
        assert "group 7, 839" in shown
