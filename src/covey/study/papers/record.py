"""The record of a table, made of its finished runs: what is stored, shown and used in the docs."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from covey.core import Catalogue, CoveyError, atomic
from covey.core.fixed_point import ARITHMETIC
from covey.evaluate.exposure import RATIOS
from covey.pooled.popularity import Popularity
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, merge
from covey.study.batch import Outcome, Progress, execute, finished, key

from .claims import judge
from .curves import course_of, extra_of, rows_of, value
from .plan import Column, Plan, Row, Scope, Table, selected
from .resume import PLANNED, Kept, kept, read
from .sanity import impossible, refuse
from .settings import configs, tuned

Figures = np.ndarray[Any, Any]
Place = tuple[str, str]  # row, column
Cells = Mapping[Place, list[Outcome]]  # an outcome for each seed
NOTHING_KEPT = Kept()


def reproduce(
    tables: Sequence[Table],
    work: Path,
    scope: Scope,
    jobs: int,
    progress: Progress,
    begin: bool = True,
    stored: Path | None = None,
) -> list[Tree]:
    """Run what has not been run yet, for all tables at once, and return their records.

    Each event is a line of text for `progress`. If nothing is to `begin`, cells that are not
    finished have no figures. `stored` is a folder of records whose complete cells are kept, if any.
    """
    tables = [table for table in (selected(table, scope) for table in tables) if table.columns]
    at_hand = None if begin else lambda c: finished(c, work / key(c)) is not None
    old = {table.name: NOTHING_KEPT for table in tables}
    wanted: dict[str, dict[Place, list[Config]]] = {}
    for table in tables:
        if stored:  # the record of this part or, if there is none, that of the whole table
            files = [file_of(table.paper, table.name, part, stored) for part in (scope.name(), "")]
            file = next(filter(Path.exists, files), files[0])
            old[table.name] = kept(table, scope, file, at_hand)
        for row_name, column_name in sorted(old[table.name].other):
            where = f"{table.paper} {table.name}: {row_name} in {column_name}"
            progress(f"{where} is kept as stored; the plan now has other settings or seeds")
        wanted[table.name] = {
            (row.label, column.label): configs(table, row, column, scope)
            for row, column in table.cells()
            if (row.label, column.label) not in old[table.name].cells
        }
    every = [config for cells in wanted.values() for cell in cells.values() for config in cell]
    found = execute(every, work, jobs, progress, begin=begin)
    records = []
    for table in tables:
        runs = {place: [found[key(c)] for c in cell] for place, cell in wanted[table.name].items()}
        records.append(record(table, runs, scope, old[table.name]))
    return records


def record(table: Table, runs: Cells, scope: Scope, old: Kept = NOTHING_KEPT) -> Tree:
    """Return the table as plain data; refuse a figure of ours that arithmetic rules out."""
    rows: list[Tree] = []
    for row in table.rows:
        cells: Tree = {}
        for column in (column for other, column in table.cells() if other is row):
            place, config = (row.label, column.label), configs(table, row, column, scope)[0]
            planned = _planned(table.plan, row, column, config)
            stays = old.cell(place, planned)
            cells[column.label] = stays or _measured(table.plan, config, runs[place]) | planned
        about = {"label": row.label, "method": row.method_name, "role": row.role}
        rows.append(about | {"lowest": row.lowest, "cells": cells})
    by_label: dict[str, Tree] = {row["label"]: row["cells"] for row in rows}
    done = [o for outcomes in runs.values() for o in outcomes if not o.error]
    plan, sweep = table.plan, table.sweep
    names = {"paper": table.paper, "table": table.name, "title": plan.title, "about": plan.about}
    made: Tree = names | {
        "quick": scope.quick,
        "part": scope.name(),
        "command": (not done and old.command) or _command(table, scope),
        "commit": ", ".join(sorted({o.made["commit"] for o in done} | old.commits)),
        "machine": "; ".join(sorted({o.made["machine"] for o in done} | old.machines)),
        **{name: list(getattr(plan, name)) for name in PLANNED},
        "sweep": sweep and {"option": ", ".join(sweep.set), "label": sweep.label},
        "columns": [_column(column) for column in table.columns],
        "rows": rows,
    }
    refuse(made)

    def cell(row: str, column: str) -> Tree | None:
        return by_label[row].get(column)

    def users(row: str, column: str, metric: str) -> Figures | None:
        outcomes = runs.get((row, column), [])
        if "." in metric:
            return extra_of(outcomes, metric, metric in plan.ends)
        return users_of(outcomes, metric)

    return made | {"claims": judge(table.claims, cell, users, old.tests)}


def _column(column: Column) -> Tree:
    names = {"label": column.label, "dataset": column.dataset, "preset": " + ".join(column.presets)}
    return names | {"panel": column.panel, "x": column.x}


def _command(table: Table, scope: Scope) -> str:
    words = ["covey reproduce", table.paper, table.name, *(["--quick"] if scope.quick else [])]
    words += [f"--dataset {name}" for name in scope.datasets]
    return " ".join([*words, *(f"--set '{text}'" for text in scope.set)])


def _planned(plan: Plan, row: Row, column: Column, config: Config) -> Tree:
    paper = row.paper.get(column.label, row.paper.get(column.panel, {}))
    figures = {m: v for m, v in paper.items() if "." not in m}
    return {
        "paper": paper,
        "impossible": impossible(figures, config.split.kind == "loo", plan.decimals),
        "tuned": tuned_of(column, row, config),
        "config": config.tree,
    }


def _measured(plan: Plan, config: Config, outcomes: list[Outcome]) -> Tree:
    good = [o for o in outcomes if not o.error]
    results = [o.result for o in good]
    found = {m: [v for r in results if (v := value(r, m)) is not None] for m in plan.metrics}
    figures = {metric: list(map(float, values)) for metric, values in found.items() if values}
    first = results[0] if results else {}
    traffic, dropped = first.get("traffic", {}), Counter[str]()
    for result in results:
        dropped.update(result.get("traffic", {}).get("dropped", {}))

    def mean(name: str) -> float:
        return round(statistics.fmean(r[name] for r in results), 2) if results else 0.0

    return {
        "seeds": [r["seed"] for r in results],
        "arithmetic": ARITHMETIC,
        "figures": figures,
        "mean": {m: statistics.fmean(v) for m, v in figures.items()},
        "spread": {m: statistics.stdev(v) if len(v) > 1 else 0.0 for m, v in figures.items()},
        "rounds": [r.get("round", 0) for r in results],
        "told": [r.get("told", {}) for r in results],  # extra metrics at the selected rounds
        "ends": [rows_of(o)[-1].get("told", {}) for o in good] if plan.ends else [],
        "course": course_of(good, plan.course) if plan.course else {},
        "lasted": traffic.get("rounds", 0),
        **{name: traffic.get(name, 0) for name in ("up_bytes", "down_bytes")},
        **{name: mean(name) for name in ("seconds", "cpu_seconds")},
        "users": first.get("dataset", {}).get("users", 0),
        "work": work_of(config, first["dataset"]["users"]) if first else None,
        "reads": reads_of(config, first) if first else "",
        "dropped": dict(sorted(dropped.items())),  # messages by reason, over all seeds
        "made": sorted({f"{o.made['commit']}, {o.made['machine']}" for o in good}),
        "errors": [{"seed": n, "error": o.error} for n, o in enumerate(outcomes) if o.error],
    }


def reads_of(config: Config, result: Tree) -> str:
    """Name the fields that leave a device, and whether the server needs single ones or sums."""
    if "pooled" in config.tree:
        return "everybody's lists"
    sent = [row for row in result.get("ledger", ()) if row["step"] != "evaluate"]
    method = method_of(config, Catalogue(result["dataset"]["items"]))
    single = {step for _, step in method.single_readers()} | {"enrol"}
    parts = []
    for step in ("enrol", "report", "train"):
        if names := dict.fromkeys(_name(row) for row in sent if row["step"] == step):
            parts.append(f"{'single' if step in single else 'sums of'} {', '.join(names)}")
    return "; ".join(parts) or "nothing"


def _name(row: Tree) -> str:
    kind, _, field = row["field"].partition("/")
    name = row["field"]
    if kind in ("update", "model"):
        name = "item rows" if field == "items" else "layers"
    return name if row["epsilon"] == "none" else f"{name} (ε {row['epsilon']:g} per {row['unit']})"


def tuned_of(column: Column, row: Row, config: Config) -> int | None:
    """Return the tuning runs behind a cell: 0 if overridden, None if there is nothing to tune."""
    if isinstance(config.part("pooled"), Popularity):
        return None
    if row.trials:
        return row.trials
    found = tuned(column.tuning, row.method_name)
    if not found or merge(config.tree, found) != config.tree:
        return 0
    return int(found["tuned"]["trials"]) * int(found["tuned"].get("seeds", 1))


def work_of(config: Config, n_users: int) -> float | None:
    """Return the local epochs of a client in the whole run; None without training on devices."""
    solver = config.part("solver")
    if solver is None:
        return None
    whole = config.run.unit == "pass" or not config.run.cohort
    share = 1.0 if whole else min(1.0, config.run.cohort / n_users)
    return round(config.run.rounds * share * getattr(solver, "epochs", 1), 4)


def users_of(outcomes: list[Outcome], metric: str) -> Figures | None:
    """Return each user's figure under each seed, [S, U]; None if a run is missing."""
    if not outcomes or any(o.error for o in outcomes):
        return None
    figures = [o.users() for o in outcomes]
    if any(len(f["clients"]) != len(figures[0]["clients"]) for f in figures):
        where = f"the runs in {outcomes[0].folder.parent}"
        raise CoveyError(f"{where} measured different clients; remove them and repeat")
    name = f"{'target' if metric in RATIOS else 'test'}/{metric}"
    if any(name not in f for f in figures):
        return None
    return np.stack([f[name].double().numpy() for f in figures])


def store(made: Tree, folder: Path) -> Path:
    """Write a record into a folder, unless it is there already, and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(made["paper"], made["table"], made["part"], folder)
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    with suppress(OSError, ValueError, LookupError, TypeError):  # no record, or a damaged one
        if read(path) == json.loads(text):
            return path
    atomic.write_text(path, text)
    return path


def file_of(paper: str, table: str, part: str, folder: Path) -> Path:
    return folder / f"{paper}-{table}{part}.json"
