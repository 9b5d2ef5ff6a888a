"""Metrics of runs over the rounds, and the extra metrics that parts of a method report.

An extra metric is named by its part and its name, such as "co-clusters.group".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.evaluate.exposure import RATIOS
from covey.run.config.tree import Tree
from covey.study.batch import Outcome

Figures = np.ndarray[Any, Any]
COURSE = "course."  # "course.er@5" is the mean of er@5 over the rounds


def extra(metrics: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    """Return one of the extra metrics of a round, which are given by part."""
    part, _, metric = name.partition(".")
    return metrics.get(part, {}).get(metric)


def rows_of(outcome: Outcome) -> list[Tree]:
    """Return a row for each evaluation; one empty row for a method without rounds."""
    path = outcome.folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines] or [{}]


def course_of(outcomes: Sequence[Outcome], names: Sequence[str]) -> Tree:
    """Return for each name a list over the rounds that all seeds have of lists over the seeds."""
    runs = [{row["round"]: row for row in rows_of(o) if "round" in row} for o in outcomes]
    rounds = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    found = {name: [[value(run[n], name) for run in runs] for n in rounds] for name in names}
    known = {name: figures for name, figures in found.items() if figures and None not in figures[0]}
    return {"rounds": rounds, "figures": known}


def value(row: Tree, name: str) -> float | None:
    """Return a test metric, an exposure or an extra metric, also of lists; None if not measured."""
    if "." in name:
        return extra(row.get("told", {}) | {"lists": row.get("lists", {})}, name)
    return row.get("target", {}).get(name) if name in RATIOS else row["test"][name]


def extra_of(outcomes: Sequence[Outcome], name: str, last: bool) -> Figures | None:
    """Return an extra metric of the selected or last round, or a mean over all rounds, [S, 1]."""
    if not outcomes or any(o.error for o in outcomes):
        return None
    if name.startswith(COURSE):
        metric, every = name.removeprefix(COURSE), map(rows_of, outcomes)
        runs = [[value(row, metric) for row in rows if "round" in row] for rows in every]
    else:
        runs = [[value(rows_of(o)[-1] if last else o.result, name)] for o in outcomes]
    found = [[v for v in run if v is not None] for run in runs]
    if any(not known or len(known) < len(run) for known, run in zip(found, runs)):
        return None
    return np.array([sum(known) / len(known) for known in found], np.float64)[:, None]
