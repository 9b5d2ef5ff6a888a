"""What runs wrote down round by round: metrics, and what a method's parts told of each round.

A told number is named by its part and its own name, such as "co-clusters.group".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covey.evaluate.exposure import RATIOS
from covey.run.config.tree import Tree
from covey.study.batch import Outcome

Figures = np.ndarray[Any, Any]
COURSE = "course."  # a claim on "course.er@5" is on the mean over the rounds


def told(said: Mapping[str, Mapping[str, float]], name: str) -> float | None:
    """One number out of what all parts told of a round."""
    part, _, number = name.partition(".")
    return said.get(part, {}).get(number)


def rows_of(outcome: Outcome) -> list[Tree]:
    """A row for each evaluation; one empty row for what is not trained in rounds."""
    path = outcome.folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines] or [{}]


def course_of(outcomes: Sequence[Outcome], names: Sequence[str]) -> Tree:
    """By name, a list over the rounds of lists over the seeds; only rounds that all seeds have."""
    runs = [{row["round"]: row for row in rows_of(o) if "round" in row} for o in outcomes]
    rounds = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
    found = {name: [[_value(run[n], name) for run in runs] for n in rounds] for name in names}
    known = {name: figures for name, figures in found.items() if figures and None not in figures[0]}
    return {"rounds": rounds, "figures": known}


def _value(row: Tree, name: str) -> float | None:
    if "." in name:
        return told(row.get("told", {}), name)
    return row.get("target", {}).get(name) if name in RATIOS else row["test"][name]


def _mean(outcome: Outcome, name: str) -> float | None:
    """Over all evaluations of a run: how soon something rises, where it ends the same."""
    values = [_value(row, name) for row in rows_of(outcome) if "round" in row]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def told_of(outcomes: Sequence[Outcome], name: str, last: bool) -> Figures | None:
    """What was told of the selected or the last round, [S, 1]: a figure of the run, not of its users."""
    if not outcomes or any(o.error for o in outcomes):
        return None
    if name.startswith(COURSE):
        means = [_mean(o, name.removeprefix(COURSE)) for o in outcomes]
        return None if None in means else np.array(means, np.float64)[:, None]
    found = [told((rows_of(o)[-1] if last else o.result).get("told", {}), name) for o in outcomes]
    return None if None in found else np.array(found, np.float64)[:, None]
