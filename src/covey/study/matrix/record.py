"""The record of a matrix, made of its finished runs: what is stored, shown and used in the docs."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.core.fixed_point import ARITHMETIC
from covey.core.ragged import Fields
from covey.evaluate.exposure import NAMES, RATIOS
from covey.run.checkpoint import MODEL, load_model
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.run.rounds_log import ROUNDS
from covey.study.batch import Outcome, Progress, execute, key
from covey.study.render.units import Stat

from .parts import NOBODY, NOTHING, Part
from .plan import Plan

FORMAT = "covey matrix 1"
WHEN = ("last", "selected")  # rounds
Figures = Sequence[Tree]  # of one run for each seed
Runs = Mapping[tuple[str, str], Sequence[Outcome]]  # (attack, defence) -> one of each seed


def run_all(plan: Plan, work: Path, jobs: int, progress: Progress) -> Runs:
    """Run every pair that is not finished; one that does not fit the method has an error."""
    seeds = plan.seeds
    pairs = [(attack, defence) for attack in plan.attacks for defence in plan.defences]
    made = {(a.label, d.label): [plan.fitted(a, d, seed) for seed in seeds] for a, d in pairs}
    names, wanted = {}, []
    for (attack, defence), configs in made.items():
        for seed, config in zip(seeds, configs):
            if isinstance(config, Config):
                wanted.append(config)
                names[key(config)] = f"{attack}, {defence}, seed {seed}"
    found = execute(wanted, work, jobs, progress, lambda config: names[key(config)])

    def outcome(config: Config | str) -> Outcome:
        return Outcome(work, error=config) if isinstance(config, str) else found[key(config)]

    return {pair: list(map(outcome, configs)) for pair, configs in made.items()}


def without_curves(made: Tree) -> Tree:
    """Return the part of a record that tables need."""
    cells = {
        attack: {
            name: {k: v for k, v in cell.items() if k != "curve"} for name, cell in row.items()
        }
        for attack, row in made["cells"].items()
    }
    return {k: v for k, v in made.items() if k != "maps"} | {"cells": cells}


def record(plan: Plan, runs: Runs) -> Tree:
    """Return the matrix as plain data."""
    metric = plan.base.evaluate.selector
    figures = {pair: [_figures(o, metric) for o in outcomes] for pair, outcomes in runs.items()}
    clean = figures[NOBODY.label, NOTHING.label]
    cells: Tree = {}
    for attack in plan.attacks:
        row = cells[attack.label] = {}
        for defence in plan.defences:
            pair = attack.label, defence.label
            row[defence.label] = _cell(plan, runs[pair], figures[pair], clean, metric)
    for defence in plan.defences:  # one that never excluded a client is no filter
        column = [row[defence.label] for row in cells.values()]
        if not any(any(cell["left_out"]) for cell in column):
            for cell in column:
                cell |= {"recall": _stat([]), "precision": _stat([])}
    done = [o for outcomes in runs.values() for o in outcomes if not o.error]
    where = {k: ", ".join(sorted({o.made[k] for o in done})) for k in ("commit", "machine")}
    return {
        "format": FORMAT,
        "method": plan.request.method,
        "dataset": plan.base.data.name,
        "preset": plan.request.preset,
        "users": plan.users,
        "items": len(plan.count_I),
        "attackers": plan.attackers,
        "share": plan.request.share,
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
        "command": plan.request.command(),
        "arithmetic": ARITHMETIC,
        **where,
    }


def _part(plan: Plan, part: Part, section: str) -> Tree:
    """Describe a part; an attack has the options that follow from the method too."""
    sections = dict(part.sections)
    if section and part is not NOBODY:
        config = plan.fitted(part, NOTHING, 0)
        if isinstance(config, Config):
            sections = {section: config.tree[section]}
    return {"label": part.label, "title": part.title, "sections": sections}


def _figures(outcome: Outcome, metric: str) -> Tree:
    """Return the figures of one run; {} if it failed."""
    if outcome.error:
        return {}
    result = outcome.result
    rows, rounds = (
        [json.loads(line) for line in (outcome.folder / name).read_text("utf-8").splitlines()]
        for name in ("metrics.jsonl", ROUNDS)
    )

    def take(row: Tree) -> Tree:
        exposure = {k: row["target"].get(k, math.nan) for k in NAMES}
        return exposure | {metric: row["test"][metric]}

    curve = [{k: None if math.isnan(v) else v for k, v in take(row).items()} for row in rows]
    columns = {name: [one[name] for one in curve] for name in curve[0]}
    last = rounds[-1]
    fell_back = last.get("told", {}).get("combine", {}).get("rows with too few uploads")
    found = result.get("attack", {})
    return {
        "last": take(rows[-1]),
        "selected": take(result),
        "round": result["round"],
        "curve": {"round": [row["round"] for row in rows], **columns},
        **{k: found.get(k) for k in ("precision", "recall", "left_out")},
        "fell_back": None if fell_back is None else int(fell_back),
        "dropped": sum(result["traffic"]["dropped"].values()),
        **{k: result[k] for k in ("cpu_seconds", "seconds")},
    }


def _cell(
    plan: Plan, outcomes: Sequence[Outcome], mine: Figures, clean: Figures, metric: str
) -> Tree:
    """Return means and spreads over seeds that did not fail; the cost is from the same seed."""
    done = [f for f in mine if f]
    pairs = [(f, c) for f, c in zip(mine, clean) if f and c]
    cell: Tree = {}
    for when in WHEN:
        cell[when] = {name: _stat([f[when][name] for f in done]) for name in (*NAMES, metric)}
        cell[when]["cost"] = _stat([c[when][metric] - f[when][metric] for f, c in pairs])
    cell["highest"] = {}
    for name in RATIOS:
        known = ([v for v in f["curve"][name] if v is not None] for f in done)
        cell["highest"][name] = _stat([max(values, default=None) for values in known])
    for name in ("precision", "recall", "cpu_seconds", "seconds"):
        cell[name] = _stat([f[name] for f in done])
    for name in ("round", "left_out", "fell_back", "dropped", "curve"):
        cell[name] = [f[name] for f in done]
    cell["seeds"] = [seed for seed, f in zip(plan.seeds, mine) if f]
    failed = [(seed, o.error) for seed, o in zip(plan.seeds, outcomes) if o.error]
    cell["errors"] = [{"seed": seed, "error": error} for seed, error in failed]
    return cell


def _stat(values: Sequence[float | None]) -> dict[str, Any]:
    return Stat.of(math.nan if value is None else value for value in values).plain()


def tables_of(runs: Runs) -> dict[tuple[str, str], Fields]:
    """Return the public models of the first seed, by attack and defence."""
    first = {pair: outcomes[0] for pair, outcomes in runs.items()}
    return {pair: load_model(o.folder / MODEL) for pair, o in first.items() if not o.error}
