"""The table of iALS and EASE beside those of other libraries, for render.py."""

import statistics
from collections.abc import Sequence
from typing import Any

NAMES = {"covey": "Covey", "implicit": "implicit", "lenskit": "LensKit"}
START = {"covey": "Covey's", "own": "its own"}


def peers(found: dict[str, Any]) -> list[str]:
    names = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    lines = [
        f"`make peers`, commit {found['commit']}, {names}: {found['data']},"
        f" {found['training pairs']:,} training pairs, mean and standard deviation over"
        f" {max(len(row['ndcg']) for row in found['rows'])} seeds of the initial vectors. CPU"
        " seconds are those of a fit and of all scores.",
        "",
        "| model | initial vectors | sweeps | library | NDCG@20 | Recall@20 | scores differ by |"
        " CPU seconds | LensKit's NDCG@20 | LensKit's Recall@20 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        apart = f"{max(row['scores apart']):.0e}" if row["scores apart"] else "–"
        alone = row["library"] == "covey" and row["scores apart"]
        cells = [row["model"], START.get(row.get("start", ""), "–"), f"{row.get('sweeps', '–')}"]
        cells += [NAMES[row["library"]], _spread(row["ndcg"]), _spread(row["recall"])]
        cells += ["–" if alone else apart, f"{statistics.median(row['cpu seconds']):.1f}"]
        cells += [_spread(row["lenskit ndcg"]), _spread(row["lenskit recall"])]
        lines.append(f"| {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "Scores: the largest difference from Covey's for any user and item, over the largest"
        " score. LensKit's columns are by its metrics' own definitions; by ir_measures, and by"
        " LensKit with Covey's definitions, the metrics of no user differ by more than"
        f" {found['metrics apart']:.0e}.",
    ]


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.4f}"
    return f"{mean} ± {statistics.stdev(values):.4f}" if len(values) > 1 else mean
