"""Bounds on ranking figures: they flag the impossible rows of a published table only."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.evaluate.metrics import METRICS, per_client
from covey.study.papers.sanity import impossible, refuse

# Wu et al., FedCL, Tables 2 and 3: HR@5, HR@10, NDCG@5, NDCG@10 of Beauty and Sports, then of Yelp
# and ML-1M; x: impossible.
PUBLISHED = """
.0144 .0296 .0082 .0131 | .0124 .0220 .0068 .0101
.0134 .0275 .0080 .0118 x | .0168 .0322 .0098 .0145
.0122 .0267 .0070 .0123 | .0106 .0199 .0062 .0094
.0104 .0212 .0072 .0109 | .0133 .0275 .0090 .0137
.0140 .0288 .0079 .0129 | .0125 .0223 .0070 .0102
.0128 .0266 .0078 .0116 x | .0157 .0310 .0095 .0142
.0245 .0413 .0155 .0209 | .0178 .0304 .0109 .0148
.0213 .0359 .0135 .0186 | .0414 .0675 .0256 .0342
.0166 .0358 .0088 .0143 | .0135 .0277 .0094 .0135
.0153 .0262 .0101 .0135 | .0769 .1662 .0388 .0674
.0134 .0316 .0074 .0130 | .0115 .0227 .0079 .0104 x
.0120 .0237 .0084 .0112 x | .0588 .1025 .0309 .0531 x
.0160 .0343 .0083 .0136 | .0130 .0270 .0091 .0129 x
.0146 .0255 .0098 .0129 | .0754 .1633 .0372 .0660
.0312 .0539 .0189 .0265 | .0184 .0311 .0115 .0156
.0264 .0413 .0176 .0225 | .1155 .2013 .0671 .0940
.0199 .0410 .0188 .0259 | .0169 .0332 .0104 .0156
.0184 .0292 .0117 .0173 x | .0736 .1344 .0427 .0622
.0158 .0352 .0160 .0222 x | .0134 .0292 .0098 .0135 x
.0152 .0256 .0100 .0114 x | .0544 .0939 .0288 .0487 x
.0191 .0397 .0182 .0250 | .0164 .0325 .0101 .0150
.0178 .0299 .0119 .0180 x | .0727 .1316 .0420 .0616
.0368 .0654 .0209 .0304 | .0215 .0348 .0124 .0179 x
.0281 .0440 .0189 .0236 | .1115 .1946 .0642 .0909
"""
FOUR = ("hit@5", "hit@10", "ndcg@5", "ndcg@10")
CELLS = [cell.split() for line in PUBLISHED.strip().splitlines() for cell in line.split("|")]


def _figures(cell: list[str]) -> dict[str, float]:
    return dict(zip(FOUR, map(float, cell[:4]), strict=True))


def test_published_table() -> None:
    assert len(CELLS) == 48
    assert sum(cell[-1] == "x" for cell in CELLS) == 13
    for cell in CELLS:
        assert bool(impossible(_figures(cell), True, 4)) == (cell[-1] == "x"), cell


def _some_ranks_give(figures: dict[str, float], half: float) -> bool:
    """Is there a distribution of ranks 1 to 10 and beyond with these figures, up to rounding?"""
    rows = []
    for metric in figures:
        name, k = metric.split("@")
        gains = [1.0 if name == "hit" else 1 / math.log2(r + 1) for r in range(1, 12)]
        rows.append([gain if r <= int(k) else 0.0 for r, gain in enumerate(gains, 1)])
    above, below = [v + half for v in figures.values()], [half - v for v in figures.values()]
    bounds = np.array(rows + [[-x for x in row] for row in rows])
    return bool(linprog(np.zeros(11), bounds, above + below, np.ones((1, 11)), [1.0]).success)


def test_what_is_let_pass_in_the_published_table_could_be() -> None:
    for cell in CELLS:
        assert _some_ranks_give(_figures(cell), 0.5e-4) == (cell[-1] != "x"), cell


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"hit@5": 0.0158, "ndcg@5": 0.0160}, "ndcg@5 = 0.0160 is above hit@5 = 0.0158"),
        # 0.387 of 0.1 at least
        ({"hit@5": 0.1, "ndcg@5": 0.0386}, "hit@5/log2(6) = 0.0387 is above ndcg@5 = 0.0386"),
        (
            {"hit@5": 0.0588, "hit@10": 0.1025, "ndcg@5": 0.0309, "ndcg@10": 0.0531},
            "ndcg@10 - ndcg@5 = 0.0222 is above (hit@10 - hit@5)/log2(7) = 0.0156",
        ),
        (
            {"hit@5": 0.0152, "hit@10": 0.0256, "ndcg@5": 0.0100, "ndcg@10": 0.0114},
            "(hit@10 - hit@5)/log2(11) = 0.0030 is above ndcg@10 - ndcg@5 = 0.0014",
        ),
        ({"hit@5": 0.3, "hit@10": 0.2}, "hit@5 = 0.3000 is above hit@10 = 0.2000"),
        ({"ndcg@5": 0.3, "ndcg@10": 0.2}, "ndcg@5 = 0.3000 is above ndcg@10 = 0.2000"),
        ({"hit@10": 0.5, "mrr@10": 0.04}, "hit@10/10 = 0.0500 is above mrr@10 = 0.0400"),
        ({"recall@10": 0.5, "mrr@10": 0.6}, "mrr@10 = 0.6000 is above recall@10 = 0.5000"),
        ({"hit@10": 0.5, "recall@10": 0.4}, "hit@10 = 0.5000 is above recall@10 = 0.4000"),
        (
            {"hit@10": 0.5, "precision@10": 0.06},
            "10 precision@10 = 0.6000 is above hit@10 = 0.5000",
        ),
        ({"ndcg@10": 0.3, "mrr@10": 0.31}, "mrr@10 = 0.3100 is above ndcg@10 = 0.3000"),
        ({"hit@10": 1.2}, "hit@10 = 1.2000 is not in [0, 1]"),
        ({"hit@10": math.nan}, "hit@10 = nan is not in [0, 1]"),
    ],
)
def test_one_relevant_item(figures: dict[str, float], said: str) -> None:
    assert impossible(figures, True, None) == [said]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (
            {"recall@20": 0.3, "precision@20": 0.01},
            "recall@20 = 0.3000 is above 20 precision@20 = 0.2000",
        ),
        ({"recall@10": 0.3, "recall@20": 0.2}, "recall@10 = 0.3000 is above recall@20 = 0.2000"),
        ({"recall@5": 0.6, "ndcg@5": 0.2}, "recall@5/log2(6) = 0.2321 is above ndcg@5 = 0.2000"),
        (
            {"precision@5": 0.4, "precision@10": 0.1},
            "5 precision@5 = 2.0000 is above 10 precision@10 = 1.0000",
        ),
        (
            {"precision@1": 0.1, "precision@2": 0.9},
            "2 precision@2 - 1 precision@1 = 1.7000 is above 2 - 1 = 1.0000",
        ),
        ({"precision@5": 0.4, "hit@5": 0.3}, "precision@5 = 0.4000 is above hit@5 = 0.3000"),
    ],
)
def test_several_relevant_items(figures: dict[str, float], said: str) -> None:
    assert impossible(figures, False, None) == [said]


def test_what_only_one_relevant_item_forbids() -> None:
    falls = {"ndcg@5": 0.3, "ndcg@10": 0.2}  # its ideal rises with the cut-off
    assert impossible(falls, True, 4) and not impossible(falls, False, 4)
    apart = {"hit@10": 0.5, "recall@10": 0.2}
    assert impossible(apart, True, 4) and not impossible(apart, False, 4)


def test_rounding_explains_what_it_can() -> None:
    """Equal figures printed as 0.0159 and 0.0160: rounding moves the last digit by one at most."""
    assert not impossible({"hit@5": 0.0159, "ndcg@5": 0.0160}, True, 4)
    assert impossible({"hit@5": 0.0158, "ndcg@5": 0.0160}, True, 4)
    assert impossible({"hit@5": 0.0159, "ndcg@5": 0.0160}, True, None)
    assert not impossible({"hit@5": 0.0159, "ndcg@5": 0.0160}, True, 3)


@st.composite
def _ranked(draw: st.DrawFn) -> tuple[Ragged, list[int], list[int], list[str]]:
    one = draw(st.booleans())
    relevant = draw(st.lists(st.integers(1, 1 if one else 30), min_size=1, max_size=8))
    ranks = [sorted(draw(st.lists(st.integers(1, 25), min_size=n, max_size=n))) for n in relevant]
    distinct = [
        list(dict.fromkeys(row)) for row in ranks
    ]  # those given twice lie beyond the last cut-off
    padded = [
        row + [100 + i for i in range(n - len(row))]
        for row, n in zip(distinct, relevant, strict=True)
    ]
    cutoffs = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4, unique=True))
    names = draw(st.lists(st.sampled_from(sorted(METRICS)), min_size=1, unique=True))
    return Ragged.of([torch.tensor(row) for row in padded]), relevant, cutoffs, names


@settings(max_examples=200, deadline=None)
@given(_ranked(), st.sampled_from([None, 2, 3, 4]))
def test_figures_of_ranks_are_never_impossible(drawn: tuple, decimals: int | None) -> None:
    ranks, relevant, cutoffs, names = drawn
    values = per_client(ranks, torch.tensor(relevant), cutoffs, names)
    figures = {metric: float(value.mean()) for metric, value in values.items()}
    rounded = figures if decimals is None else {m: round(v, decimals) for m, v in figures.items()}
    assert impossible(rounded, max(relevant) == 1, decimals) == []
    assert impossible(rounded, False, decimals) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=4, max_size=4))
def test_what_is_flagged_no_ranks_can_give(values: list[int]) -> None:
    figures = {metric: value / 1000 for metric, value in zip(FOUR, values, strict=True)}
    if impossible(figures, True, 3):
        assert not _some_ranks_give(figures, 0.5e-3 - 1e-9)


def _record(kind: str, **figures: list[float]) -> dict:
    named = {name.replace("_", "@"): values for name, values in figures.items()}
    cell = {
        "figures": named,
        "mean": {m: float(np.mean(values)) for m, values in named.items()},
        "seeds": [0, 1],
        "errors": [],
        "config": {"split": {"kind": kind}},
    }
    return {"rows": [{"label": "PFedRec", "cells": {"ML-100K, honest": cell}}]}


def test_an_impossible_table_is_refused() -> None:
    """The mean could be, the second seed could not."""
    record = _record("loo", hit_10=[0.70, 0.40], ndcg_10=[0.40, 0.41])
    with pytest.raises(
        CoveyError, match=r"PFedRec in ML-100K, honest, seed 1: ndcg@10 = 0.4100 is above hit@10"
    ):
        refuse(record)
    refuse(_record("loo", hit_10=[0.70, 0.71], ndcg_10=[0.40, 0.41]))


def test_bounds_of_one_relevant_item_are_for_leave_one_out() -> None:
    figures = {"ndcg_5": [0.3, 0.3], "ndcg_10": [0.2, 0.2]}
    refuse(_record("ratio", **figures))
    with pytest.raises(CoveyError, match="seed 0"):
        refuse(_record("loo", **figures))


def test_a_mean_that_is_none_is_refused() -> None:
    record = _record("loo", hit_10=[0.70, 0.71])
    record["rows"][0]["cells"]["ML-100K, honest"]["mean"]["hit@10"] = 0.72
    with pytest.raises(CoveyError, match=r"hit@10 0\.7200 is not the mean of its seeds"):
        refuse(record)


def test_a_cell_whose_runs_failed_is_a_hole() -> None:
    record = _record("loo")
    hole = record["rows"][0]["cells"]["ML-100K, honest"]
    hole["errors"] = [{"seed": 0, "error": "no memory"}]
    refuse(record)  # nothing to object to
    hole["figures"], hole["mean"] = {"hit@10": [1.2]}, {"hit@10": 1.2}
    with pytest.raises(
        CoveyError, match="hit@10"
    ):  # a figure beside the error is judged like any other
        refuse(record)


def test_exposure_rises_with_the_cut_off() -> None:
    assert not impossible({"er@5": 0.2, "er@10": 0.2, "hit@10": 0.1}, False, 4)
    assert impossible({"er@5": 0.2, "er@20": 0.1}, False, 4) == [
        "er@5 = 0.2000 is above er@20 = 0.1000"
    ]
