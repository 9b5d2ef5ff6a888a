"""From finished runs to the record of a matrix: what is stored, shown, and rendered into the docs."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.core.ragged import Fields
from covey.evaluate.exposure import NAMES, RATIOS
from covey.run.checkpoint import MODEL
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.run.rounds_log import ROUNDS
from covey.study.batch import Outcome, Say, execute, key

from .parts import NOBODY, NOTHING, Part
from .plan import Plan

FORMAT = "covey matrix 1"
WHEN = ("last", "selected")  # rounds
Runs = Mapping[tuple[str, str], Sequence[Outcome]]  # (attack, defence) -> one of each seed


def run_all(plan: Plan, work: Path, jobs: int, say: Say) -> dict[tuple[str, str], list[Outcome]]:
    """Every pair once, as far as it is not there already; a pair that does not fit is an outcome too."""
    made: dict[tuple[str, str, int], Config | str] = {}
    for attack in plan.attacks:
        for defence in plan.defences:
            for seed in plan.seeds:
                made[attack.label, defence.label, seed] = plan.fitted(attack, defence, seed)
    names = {
        key(c): f"{a}, {d}, seed {seed}"
        for (a, d, seed), c in made.items()
        if isinstance(c, Config)
    }
    wanted = [c for c in made.values() if isinstance(c, Config)]
    found = execute(wanted, work, jobs, say, lambda config: names[key(config)])
    outcome = lambda c: found[key(c)] if isinstance(c, Config) else Outcome(work, error=c)
    return {
        (a.label, d.label): [outcome(made[a.label, d.label, seed]) for seed in plan.seeds]
        for a in plan.attacks
        for d in plan.defences
    }


def without_curves(made: Tree) -> Tree:
    """What tables need of a record."""
    short = lambda cell: {k: v for k, v in cell.items() if k != "curve"}
    cells = {
        attack: {defence: short(cell) for defence, cell in row.items()}
        for attack, row in made["cells"].items()
    }
    return {k: v for k, v in made.items() if k != "maps"} | {"cells": cells}


def record(plan: Plan, runs: Runs) -> Tree:
    """The matrix as plain data."""
    metric = plan.base.evaluate.selector
    figures = {pair: [_figures(o, metric) for o in outcomes] for pair, outcomes in runs.items()}
    clean = figures[NOBODY.label, NOTHING.label]
    cells: Tree = {}
    for attack in plan.attacks:
        row = cells[attack.label] = {}
        for defence in plan.defences:
            pair = attack.label, defence.label
            row[defence.label] = _cell(plan, runs[pair], figures[pair], clean, metric)
    _only_filters(cells)
    done = [o for outcomes in runs.values() for o in outcomes if not o.error]
    told = lambda name: ", ".join(sorted({o.made[name] for o in done}))
    return {
        "format": FORMAT,
        "method": plan.wish.method,
        "dataset": plan.base.data.name,
        "preset": plan.wish.preset,
        "users": plan.users,
        "items": len(plan.count_I),
        "attackers": plan.attackers,
        "share": plan.wish.share,
        "targets": [
            {"item": t, "id": own, "title": name, "users": int(plan.count_I[t])}
            for t, own, name in zip(plan.targets, plan.ids, plan.titles)
        ],
        "rounds": plan.base.run.rounds,
        "unit": plan.base.run.unit,
        "seeds": list(plan.seeds),
        "metric": metric,
        "attacks": [_part(plan, part, "attack") for part in plan.attacks],
        "defences": [_part(plan, part, "") for part in plan.defences],
        "cells": cells,
        "command": plan.wish.command(),
        "commit": told("commit"),
        "machine": told("machine"),
    }


def _part(plan: Plan, part: Part, section: str) -> Tree:
    """With the options it ran with, as far as they follow the method."""
    sections = dict(part.sections)
    if (
        section
        and part is not NOBODY
        and isinstance(config := plan.fitted(part, NOTHING, 0), Config)
    ):
        sections = {section: config.tree[section]}
    return {"label": part.label, "title": part.title, "sections": sections}


def _figures(outcome: Outcome, metric: str) -> Tree:
    """What one run showed; nothing where it failed."""
    if outcome.error:
        return {}
    result = outcome.result
    rows = [json.loads(line) for line in _lines(outcome.folder / "metrics.jsonl")]
    take = lambda row: {
        **{k: row["target"].get(k, math.nan) for k in NAMES},
        metric: row["test"][metric],
    }
    last = json.loads(_lines(outcome.folder / ROUNDS)[-1])
    fell_back = last.get("told", {}).get("combine", {}).get("rows with too few uploads")
    found = result.get("attack", {})
    return {
        "last": take(rows[-1]),
        "selected": take(result),
        "round": result["round"],
        "curve": {"round": [row["round"] for row in rows], **_columns([take(row) for row in rows])},
        "precision": found.get("precision"),
        "recall": found.get("recall"),
        "left_out": found.get("left_out"),
        "fell_back": None if fell_back is None else int(fell_back),
        "dropped": sum(result["traffic"]["dropped"].values()),
        "cpu_seconds": result["cpu_seconds"],
        "seconds": result["seconds"],
    }


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _columns(rows: Sequence[Tree]) -> Tree:
    return {name: [_number(row[name]) for row in rows] for name in rows[0]}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _cell(
    plan: Plan,
    outcomes: Sequence[Outcome],
    mine: Sequence[Tree],
    clean: Sequence[Tree],
    metric: str,
) -> Tree:
    """Means and spreads over the seeds that came through; the cost is against the same seed, clean and undefended."""
    done = [f for f in mine if f]
    pairs = [(f, c) for f, c in zip(mine, clean) if f and c]
    cell: Tree = {
        when: {name: _stat([f[when][name] for f in done]) for name in (*NAMES, metric)}
        | {"cost": _stat([c[when][metric] - f[when][metric] for f, c in pairs])}
        for when in WHEN
    }
    cell["highest"] = {name: _stat([_most(f["curve"][name]) for f in done]) for name in RATIOS}
    cell |= {
        name: _stat([f[name] for f in done])
        for name in ("precision", "recall", "cpu_seconds", "seconds")
    }
    cell |= {
        name: [f[name] for f in done]
        for name in ("round", "left_out", "fell_back", "dropped", "curve")
    }
    cell["seeds"] = [seed for seed, f in zip(plan.seeds, mine) if f]
    cell["errors"] = [
        {"seed": seed, "error": o.error} for seed, o in zip(plan.seeds, outcomes) if o.error
    ]
    return cell


def _most(values: Sequence[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _only_filters(cells: Tree) -> None:
    """A defence that never left out a client is no filter: it has no recall."""
    for defence in next(iter(cells.values())):
        column = [row[defence] for row in cells.values()]
        if not any(any(cell["left_out"]) for cell in column):
            for cell in column:
                cell |= {"recall": _stat([]), "precision": _stat([])}


def _stat(values: Sequence[float | None]) -> dict[str, Any]:
    known = [v for v in values if v is not None and not math.isnan(v)]
    return {
        "mean": statistics.fmean(known) if known else None,
        "spread": statistics.stdev(known) if len(known) > 1 else None,
        "values": known,
    }


def tables_of(runs: Runs) -> dict[tuple[str, str], Fields]:
    """The public models of the first seed, by attack and defence."""
    from covey.run.checkpoint import load_model

    first = {pair: outcomes[0] for pair, outcomes in runs.items()}
    return {pair: load_model(o.folder / MODEL) for pair, o in first.items() if not o.error}
