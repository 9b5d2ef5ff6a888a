"""Short forms of a record: what the server can read, row by row, and shares of the ceiling."""

import json
from pathlib import Path
from typing import Any

import pytest

from covey.core.errors import CoveyError
from covey.run.config.schema import Config
from covey.run.config.shipped import read
from covey.run.config.tree import merge
from covey.study.papers.docs import SHOWN, best, families, render, shares
from covey.study.papers.record import reads_of

Cell = dict[str, Any]


def cell(mean: float, reads: str, up: int = 0) -> Cell:
    figures = {"recall@20": [mean, mean], "ndcg@20": [mean, mean]}
    return {
        "figures": figures,
        "mean": dict.fromkeys(figures, mean),
        "spread": dict.fromkeys(figures, 0.01),
        "rounds": [4, 6] if up else [0, 0],
        "up_bytes": up,
        "down_bytes": 2 * up,
        "users": 10,
        "tuned": 12 if up else None,
        "reads": reads,
        "seeds": [0, 1],
        "errors": [],
        "work": None,
        "seconds": 1.0,
    }


def record() -> dict[str, Any]:
    rows = [
        {
            "label": "one",
            "role": "",
            "cells": {"A": cell(0.1, "sums of item rows", 1000), "B": cell(0.3, "x", 1000)},
        },
        {"label": "top", "role": "ceiling", "cells": {"A": cell(0.4, "everybody's lists")}},
    ]
    columns = [{"label": "A"}, {"label": "B"}]
    made = {"command": "covey reproduce x", "commit": "abc", "machine": "m"}
    return made | {"metrics": ["recall@20", "ndcg@20"], "columns": columns, "rows": rows}


def test_a_line_for_each_row() -> None:
    head, one, top = families(record())
    assert head == ("", "the server can read", "recall@20", "trials", "rounds", "up", "down")
    assert one[:2] == ("one", "sums of item rows") and [
        n.replace("\u00a0", " ") for n in one[3:]
    ] == ["12", "4 to 6", "100 B", "200 B"]
    assert top[:2] == ("top (ceiling)", "everybody's lists") and top[3:] == ("–", "–", "–", "–")
    assert "| one | sums of item rows | 0.1000 ± 0.0100 |" in SHOWN["families"](record())
    assert "`covey reproduce x`" in SHOWN["families"](record())


def test_shares_of_the_ceiling() -> None:
    assert list(shares(record())) == [("ndcg@20 over that of top", "A", "B"), ("one", "25.0%", "–")]
    assert "| one | 25.0% | – |" in SHOWN["shares"](record())


def test_one_page_can_be_rendered(tmp_path: Path) -> None:
    (tmp_path / "own-t.json").write_text(json.dumps(record()))
    page, other = tmp_path / "README.md", tmp_path / "other.md"
    for path in (page, other):
        path.write_text(
            "<!-- families:own-t -->\n<!-- end -->\n<!-- shares:own-t -->\n<!-- end -->\n"
        )
    assert render(page, tmp_path) == [page]
    assert (
        "sums of item rows" in page.read_text()
        and "25.0%" in page.read_text()
        and "25.0%" not in other.read_text()
    )


def test_the_best_comes_first() -> None:
    head, top, one = best(record())
    assert head == ("", "the server can read", "recall@20", "rounds", "upload of a client")
    assert top == ("top (ceiling)", "everybody's lists", "0.4000 ± 0.0100", "–", "–")
    assert one[:4] == ("one", "sums of item rows", "0.1000 ± 0.0100", "4 to 6")


def test_a_mark_can_name_its_rows(tmp_path: Path) -> None:
    (tmp_path / "own-t.json").write_text(json.dumps(record() | {"paper": "own", "table": "t"}))
    page = tmp_path / "README.md"
    page.write_text(
        "<!-- best:own-t | one -->\n<!-- end -->\n<!-- families:own-t | top -->\n<!-- end -->\n"
    )
    assert render(page, tmp_path) == [page]
    short, _, long = page.read_text().partition("<!-- families")
    assert "| one |" in short and "top" not in short
    assert "| top (ceiling) |" in long and "| one |" not in long
    assert render(page, tmp_path) == []
    page.write_text("<!-- best:own-t | nobody -->\n<!-- end -->\n")
    with pytest.raises(CoveyError, match="own-t has no row 'nobody'; its rows are: one; top"):
        render(page, tmp_path)


@pytest.mark.parametrize(
    ("method", "fields", "said"),
    [
        ("popularity", [], "everybody's lists"),
        ("local", [], "nothing"),
        ("fedmf", [("train", "update/items")], "sums of item rows"),
        (
            "fedncf",
            [("train", "update/items"), ("train", "update/w0")],
            "sums of item rows, layers",
        ),
        ("spectral", [("report", "spectral/rows")], "sums of spectral/rows"),
        ("cofedrec", [("train", "model/items")], "single item rows"),
        (
            "cl4fedrec",
            [("train", "update/items"), ("enrol", "contrast/counts")],
            "single contrast/counts; sums of item rows",
        ),
    ],
)
def test_what_the_server_can_read(method: str, fields: list[tuple[str, str]], said: str) -> None:
    ledger = [
        {"step": step, "field": name, "epsilon": "none", "unit": "message"} for step, name in fields
    ]
    ledger.append(
        {"step": "evaluate", "field": "evaluate/test/ndcg@20", "epsilon": "none", "unit": "message"}
    )
    config = Config.of(merge(read("methods", method), {"data": {"name": "synthetic"}}))
    assert reads_of(config, {"ledger": ledger, "dataset": {"items": 40}}) == said


def test_a_guarantee_is_named() -> None:
    ledger = [{"step": "enrol", "field": "contribution/list", "epsilon": 5.0, "unit": "item"}]
    config = Config.of(merge(read("methods", "pdc-frs"), {"data": {"name": "synthetic"}}))
    found = reads_of(config, {"ledger": ledger, "dataset": {"items": 40}})
    assert found == "single contribution/list (ε 5 per item)"
