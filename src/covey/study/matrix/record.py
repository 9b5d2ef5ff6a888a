"""Makes the record of a matrix, which is stored, shown and used in the docs, and its item maps."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.fixed_point import ARITHMETIC
from covey.core.ragged import Fields
from covey.data.naming import ids_of
from covey.evaluate.exposure import NAMES, RATIOS
from covey.run.assemble import prepare
from covey.run.checkpoint import MODEL, load_model
from covey.run.config.schema import Config
from covey.run.config.tree import Tree
from covey.run.rounds_log import ROUNDS
from covey.study.batch import Outcome, Progress, execute, key
from covey.study.render.units import Stat
from covey.study.report.items import table_of, titles_of

from . import map_page as maps
from .formatting import Record, labels
from .parts import NOBODY, NOTHING, Part
from .plan import Plan, with_names

FORMAT = "covey matrix 1"
WHEN = ("last", "selected")  # rounds
Figures = Sequence[Tree]  # of one run for each seed
Runs = Mapping[tuple[str, str], Sequence[Outcome]]  # (attack, defence) -> one of each seed
Tables = Mapping[tuple[str, str], Tensor]
Found = tuple[Tree, maps.Items, list[maps.Row]]


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
        attack: {of: {k: v for k, v in cell.items() if k != "curve"} for of, cell in row.items()}
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
        return {k: row["target"].get(k, math.nan) for k in NAMES} | {metric: row["test"][metric]}

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


def _cell(plan: Plan, runs: Sequence[Outcome], mine: Figures, clean: Figures, metric: str) -> Tree:
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
    failed = [(seed, o.error) for seed, o in zip(plan.seeds, runs) if o.error]
    cell["errors"] = [{"seed": seed, "error": error} for seed, error in failed]
    return cell


def _stat(values: Sequence[float | None]) -> dict[str, Any]:
    return Stat.of(math.nan if value is None else value for value in values).plain()


def tables_of(runs: Runs) -> dict[tuple[str, str], Fields]:
    """Return the public models of the first seed, by attack and defence."""
    first = {pair: outcomes[0] for pair, outcomes in runs.items()}
    return {pair: load_model(o.folder / MODEL) for pair, o in first.items() if not o.error}


def matrix(plan: Plan, work: Path, k: int, jobs: int, progress: Progress) -> Found:
    """Run what is missing; ER@`k` chooses the best defence. Return record, items and maps."""
    runs = run_all(plan, work, jobs, progress)
    errors = [o.error for outcomes in runs.values() for o in outcomes]
    if all(errors):
        raise CoveyError(f"every run failed; the first: {errors[0]}")
    made = record(plan, runs)
    hot = min(maps.HOT, -(-len(plan.count_I) // 10))  # a tenth of a small catalogue
    prepared = prepare(plan.base)
    titles = with_names(titles_of(prepared), ids_of(prepared.dataset), plan.targets)
    items = maps.Items(plan.count_I, titles, plan.targets, hot)
    every = {pair: table_of(public) for pair, public in tables_of(runs).items()}
    found = {pair: table for pair, table in every.items() if table is not None}
    rows = before_and_after(made, found, items, k)
    drawn = ((attack, [one.plain() for one in some]) for attack, some in rows)
    made["maps"] = [{"attack": attack, "maps": some} for attack, some in drawn]
    return made, items, rows


def before_and_after(made: Record, tables: Tables, items: maps.Items, k: int) -> list[maps.Row]:
    """Return maps for each attack, in common directions: without it, undefended, best defended."""
    clean = tables.get((NOBODY.label, NOTHING.label))
    if clean is None:
        return []
    directions = maps.Directions.of(clean)

    def draw(name: str, table: Tensor) -> maps.Map:
        return maps.Map.of(name, table, items, directions)

    rows: list[maps.Row] = []
    for attack in labels(made, "attacks")[1:]:
        after = {d: tables[attack, d] for d in labels(made, "defences") if (attack, d) in tables}
        shown = [NOTHING.label, *best(made, attack, [d for d in after if d != NOTHING.label], k)]
        some = [draw(f"{attack}, {d}", after[d]) for d in shown if d in after]
        rows += [(attack, [draw(NOBODY.label, clean), *some])] if some else []
    return rows


def best(made: Record, attack: str, defences: Sequence[str], k: int) -> list[str]:
    """Return the defence with the lowest exposure, the most accurate one of equals."""
    mine = (part["sections"] for part in made["attacks"][1:] if part["label"] == attack)
    targeted = any("targets" in sections["attack"] for sections in mine)

    def place(defence: str) -> tuple[float, float]:
        cell = made["cells"][attack][defence]
        er = cell["highest"][f"er@{k}"]["mean"] if targeted else 0.0
        return (1.0 if er is None else round(er, 3)), -cell["last"][made["metric"]]["mean"]

    return sorted(defences, key=place)[:1]
