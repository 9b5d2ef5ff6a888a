"""Records made up for the tests of how they are shown: no run gave these figures."""

from typing import Any

from report_runs import EVIL

Record = dict[str, Any]
METHODS = [
    ("popularity", "floor", 0.31),
    ("local", "control", 0.36),
    ("FedMF", "", 0.44),
    ("FedNCF", "", 0.46),
    ("FedFast", "", 0.45),
    ("PFedRec", "", 0.52),
    ("MF, pooled", "ceiling", 0.55),
    ("EASE, pooled", "ceiling", 0.57),
]
PUBLISHED, HONEST = "ML-100K, as published", "ML-100K, honest"


def cell(level: float, paper: dict[str, float] | None = None, seeds: int = 5) -> Record:
    """Figures around a level."""
    metrics = {"hit@10": level, "ndcg@10": level * 0.56}
    figures = {
        m: [v + 0.002 * (s - (seeds - 1) / 2) for s in range(seeds)] for m, v in metrics.items()
    }
    return {
        "paper": paper or {},
        "impossible": [],
        "seeds": list(range(seeds)),
        "figures": figures,
        "mean": metrics,
        "spread": dict.fromkeys(metrics, 0.0032 if seeds > 1 else 0.0),
        "rounds": [70 + 5 * s for s in range(seeds)],
        "users": 943,
        "up_bytes": 123_456_789,
        "down_bytes": 234_567_890,
        "seconds": 61.2,
        "cpu_seconds": 60.0,
        "work": 100.0,
        "tuned": 20,
        "config": {},
        "errors": [],
    }


def failed(error: str, paper: dict[str, float] | None = None) -> Record:
    nothing = dict(
        seeds=[],
        figures={},
        mean={},
        spread={},
        rounds=[],
        up_bytes=0,
        down_bytes=0,
        seconds=0.0,
        work=None,
    )
    return (
        cell(0.0, paper)
        | nothing
        | {"tuned": 0, "errors": [{"seed": s, "error": error} for s in range(5)]}
    )


def claim(text: str, verdict: str, reason: str, column: str) -> Record:
    test = dict(
        better="PFedRec",
        worse="FedMF",
        column=column,
        against=column,
        metric="ndcg@10",
        verdict=verdict,
    )
    more = dict(difference=0.0412, low=0.031, high=0.052, p=0.00002, p_holm=0.0001, reason=reason)
    return {"text": text, "verdict": verdict, "reason": reason, "tests": [test | more]}


def column(label: str, panel: str = "", x: float | None = None) -> Record:
    return {
        "label": label,
        "dataset": "ml-100k",
        "preset": "honest",
        "panel": panel or label,
        "x": x,
    }


def _record(**parts: Any) -> Record:
    return {
        "paper": "pfedrec",
        "table": "table2",
        "title": "Federated methods on ML-100K",
        "about": "Zhang et al., Dual Personalization on Federated Recommendation, IJCAI 2023",
        "quick": False,
        "command": "covey reproduce pfedrec table2",
        "commit": "abc1234",
        "machine": "x86_64 CPU, torch 2.11.0",
        "metrics": ["hit@10", "ndcg@10"],
        "sweep": None,
    } | parts


def table(quick: bool = False) -> Record:
    """Two protocols, eight methods, failed runs, an impossible figure and unsafe labels."""
    rows = []
    for name, role, level in METHODS:
        paper = {"hit@10": level + 0.17, "ndcg@10": level * 0.56 + 0.1} if not role else {}
        cells = {PUBLISHED: cell(level + 0.15, paper), HONEST: cell(level)}
        rows.append({"label": name, "method": name.lower(), "role": role, "cells": cells})
    by_name = {row["label"]: row["cells"] for row in rows}
    by_name["FedNCF"][HONEST] = failed("the loss is not finite in round 3; lower solver.lr")
    lost = [{"seed": 3, "error": "out of memory"}]
    by_name["FedMF"][HONEST] = cell(0.44, seeds=4) | {"seeds": [0, 1, 2, 4], "errors": lost}
    by_name["FedFast"][PUBLISHED]["paper"]["hit@10"] = 0.34
    by_name["FedFast"][PUBLISHED]["impossible"] = [
        "ndcg@10 0.3520 is above hit@10 0.3400: no list of ten gives that"
    ]
    for key in ("popularity", "MF, pooled", "EASE, pooled"):
        for one in by_name[key].values():
            one.update(rounds=[0] * 5, up_bytes=0, down_bytes=0, work=None)
    del by_name["local"][PUBLISHED]
    rows[2]["label"] = f"FedMF {EVIL}"
    claims = [
        claim(
            "PFedRec beats FedMF on ML-100K",
            "holds",
            "in all of 2 metrics, p at most 0.0001",
            PUBLISHED,
        ),
        claim("PFedRec beats FedNCF", "not decided", "the runs of FedNCF failed", HONEST),
        claim(
            "FedFast beats PFedRec",
            "fails",
            "PFedRec is better by 0.0392 (0.031 to 0.052)",
            PUBLISHED,
        ),
    ]
    return _record(
        columns=[column(PUBLISHED), column(HONEST)], rows=rows, claims=claims, quick=quick
    )


def figure() -> Record:
    """A sweep over two datasets; the first has the paper's points, the second distant values."""
    sweeps = {"ML-100K": [1.0, 2.0, 4.0, 8.0, 16.0], "ML-1M": [0.1, 1.0, 10.0, 100.0]}
    columns = [column(f"{name}, ε={x:g}", name, x) for name, xs in sweeps.items() for x in xs]
    rows = []
    for name, role, level in (METHODS[0], METHODS[2], METHODS[5], METHODS[6]):
        cells = {}
        for i, one in enumerate(columns):
            rise = 0.0 if role else 0.012 * (i % 5)
            paper = (
                {"hit@10": level + rise + 0.03, "ndcg@10": level * 0.56 + rise}
                if one["panel"] == "ML-100K"
                else {}
            )
            cells[one["label"]] = cell(level + rise, {} if role else paper, seeds=3)
        rows.append({"label": name, "method": name.lower(), "role": role, "cells": cells})
    rows[1]["cells"]["ML-100K, ε=4"] = failed("it was killed")
    rows[2]["cells"]["ML-100K, ε=8"]["impossible"] = ["hit@10 of more than there are users"]
    claims = [
        claim(
            "A larger ε gives a better PFedRec",
            "holds",
            "from 0.52 to 0.568 on ML-100K",
            "ML-100K, ε=16",
        )
    ]
    sweep = {"option": "mechanism.0.epsilon", "label": "ε"}
    named = dict(table="fig4", title="Accuracy against the budget", sweep=sweep)
    return _record(
        **named, columns=columns, rows=rows, claims=claims, command="covey reproduce pfedrec fig4"
    )
