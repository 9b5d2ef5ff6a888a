"""From finished runs to the record of a table: what is stored, shown, and rendered into the docs."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covey.core import atomic
from covey.core.errors import CoveyError
from covey.evaluate.exposure import RATIOS
from covey.pooled.popularity import Popularity
from covey.run.config.schema import Config
from covey.run.config.tree import Tree, merge
from covey.study.batch import Outcome, Say, done_before, execute, key

from .claims import judge
from .curves import course_of, rows_of, told_of
from .plan import Column, Cut, Row, Table, chosen, configs, tuned
from .resume import Kept, kept, read
from .sanity import impossible, refuse
from .summaries import reads_of

Figures = np.ndarray[Any, Any]
Cells = dict[tuple[str, str], list[Outcome]]  # (row, column) -> one per seed
NOTHING_KEPT = Kept()


def reproduce(
    tables: Sequence[Table],
    work: Path,
    cut: Cut,
    jobs: int,
    say: Say,
    begin: bool = True,
    stored: Path | None = None,
) -> list[Tree]:
    """Runs what has not been run yet, for all tables at once, and returns their records.

    Without `begin` nothing is run, and what is missing is a hole. What the records in `stored` have is kept.
    """
    tables = [table for table in (chosen(table, cut) for table in tables) if table.columns]
    at_hand = None if begin else lambda config: done_before(config, work) is not None
    old = {
        table.name: _kept_of(table, cut, stored, at_hand) if stored else NOTHING_KEPT
        for table in tables
    }
    for table in tables:
        for row, column in sorted(old[table.name].other):
            where = f"{table.paper} {table.name}: {row} in {column}"
            say(f"{where} is kept as stored, with other settings or seeds than the plan has now")
    wanted = {
        (table.name, row.label, column.label): configs(table, row, column, cut)
        for table in tables
        for row, column in table.cells()
        if (row.label, column.label) not in old[table.name].cells
    }
    found = execute(
        [config for cell in wanted.values() for config in cell], work, jobs, say, begin=begin
    )
    records = []
    for table in tables:
        runs = {
            (row.label, column.label): [
                found[key(c)] for c in wanted[table.name, row.label, column.label]
            ]
            for row, column in table.cells()
            if (row.label, column.label) not in old[table.name].cells
        }
        records.append(record(table, runs, cut, old[table.name]))
    return records


def _kept_of(
    table: Table, cut: Cut, stored: Path, at_hand: Callable[[Config], bool] | None
) -> Kept:
    """Of the record of this part, or where there is none, of the whole table."""
    files = [file_of(table.paper, table.name, part, stored) for part in (cut.name(), "")]
    return kept(table, cut, next(filter(Path.exists, files), files[0]), at_hand)


def record(table: Table, runs: Cells, cut: Cut, old: Kept = NOTHING_KEPT) -> Tree:
    """The table as plain data; refused where arithmetic forbids one of our own numbers."""
    rows: list[Tree] = []
    for row in table.rows:
        mine = {c.label: c for r, c in table.cells() if r is row}
        cells = {
            label: old.cell((row.label, label), _planned(table, row, column, cut))
            or _measured(table, row, column, runs[row.label, label], cut)
            | _planned(table, row, column, cut)
            for label, column in mine.items()
        }
        names = {"label": row.label, "method": row.method, "role": row.role, "lowest": row.lowest}
        rows.append(names | {"cells": cells})
    by_label: dict[str, Tree] = {row["label"]: row["cells"] for row in rows}
    done = [o for outcomes in runs.values() for o in outcomes if not o.error]
    made: Tree = {
        "paper": table.paper,
        "table": table.name,
        "title": table.plan.title,
        "about": table.plan.about,
        "quick": cut.quick,
        "part": cut.name(),
        "command": (not done and old.command) or _command(table, cut),
        "commit": ", ".join(sorted({o.made["commit"] for o in done} | old.commits)),
        "machine": "; ".join(sorted({o.made["machine"] for o in done} | old.machines)),
        "metrics": list(table.plan.metrics),
        "told": list(table.plan.told),
        "ends": list(table.plan.ends),
        "course": list(table.plan.course),
        "sweep": {"option": ", ".join(table.sweep.set), "label": table.sweep.label}
        if table.sweep
        else None,
        "columns": [_column(column) for column in table.columns],
        "rows": rows,
    }
    refuse(made)

    def cell(row: str, column: str) -> Tree | None:
        return by_label[row].get(column)

    def users(row: str, column: str, metric: str) -> Figures | None:
        outcomes = runs.get((row, column), [])
        return (
            told_of(outcomes, metric, metric in table.plan.ends)
            if "." in metric
            else users_of(outcomes, metric)
        )

    return made | {"claims": judge(table.claims, cell, users, old.tests)}


def _column(column: Column) -> Tree:
    return {
        "label": column.label,
        "dataset": column.dataset,
        "preset": " + ".join(column.presets),
        "panel": column.panel,
        "x": column.x,
    }


def _command(table: Table, cut: Cut) -> str:
    words = ["covey reproduce", table.paper, table.name, *(["--quick"] if cut.quick else [])]
    words += [f"--dataset {name}" for name in cut.datasets] + [
        f"--set '{text}'" for text in cut.set
    ]
    return " ".join(words)


def _planned(table: Table, row: Row, column: Column, cut: Cut) -> Tree:
    """What a cell has before it is run."""
    config = configs(table, row, column, cut)[0]
    paper = row.paper.get(column.label, row.paper.get(column.panel, {}))
    figures = {m: v for m, v in paper.items() if "." not in m}
    return {
        "paper": paper,
        "impossible": impossible(figures, config.split.kind == "loo", table.plan.decimals),
        "tuned": tuned_of(column, row, config),
        "config": config.tree,
    }


def _measured(table: Table, row: Row, column: Column, outcomes: list[Outcome], cut: Cut) -> Tree:
    config = configs(table, row, column, cut)[0]
    good = [o for o in outcomes if not o.error]
    results = [o.result for o in good]
    figures = {
        m: had
        for m in table.plan.metrics
        if (had := [v for r in results if (v := figure(r, m)) is not None])
    }
    first = results[0] if results else {}
    traffic = first.get("traffic", {})
    mean = lambda name: statistics.fmean(r[name] for r in results) if results else 0.0
    return {
        "seeds": [r["seed"] for r in results],
        "figures": figures,
        "mean": {m: statistics.fmean(v) for m, v in figures.items()},
        "spread": {m: statistics.stdev(v) if len(v) > 1 else 0.0 for m, v in figures.items()},
        "rounds": [r.get("round", 0) for r in results],
        "told": [r.get("told", {}) for r in results],  # by the method's parts, of those rounds
        "ends": [rows_of(o)[-1].get("told", {}) for o in good] if table.plan.ends else [],
        "course": course_of(good, table.plan.course) if table.plan.course else {},
        "lasted": traffic.get("rounds", 0),
        "up_bytes": traffic.get("up_bytes", 0),
        "down_bytes": traffic.get("down_bytes", 0),
        "seconds": round(mean("seconds"), 2),
        "cpu_seconds": round(mean("cpu_seconds"), 2),
        "users": first.get("dataset", {}).get("users", 0),
        "work": work_of(config, first["dataset"]["users"]) if first else None,
        "reads": reads_of(config, first) if first else "",
        "dropped": _dropped(results),
        "made": sorted({f"{o.made['commit']}, {o.made['machine']}" for o in good}),
        "errors": [{"seed": n, "error": o.error} for n, o in enumerate(outcomes) if o.error],
    }


def _dropped(results: list[Tree]) -> dict[str, int]:
    """Messages that did not count, by reason, over all seeds."""
    every = [r.get("traffic", {}).get("dropped", {}) for r in results]
    return {
        why: sum(one.get(why, 0) for one in every)
        for why in sorted({why for one in every for why in one})
    }


def figure(result: Tree, metric: str) -> float | None:
    """A test figure, or how far the targets are pushed; None where that was not measured."""
    value = result.get("target", {}).get(metric) if metric in RATIOS else result["test"][metric]
    return None if value is None else float(value)


def tuned_of(column: Column, row: Row, config: Config) -> int | None:
    """Runs of tuning behind a cell's settings; 0 where one of them was changed by hand; None: nothing to tune."""
    if isinstance(config.part("pooled"), Popularity):
        return None
    if row.trials:
        return row.trials
    found = tuned(column.tuning, row.method)
    if not found or merge(config.tree, found) != config.tree:
        return 0
    return int(found["tuned"]["trials"]) * int(found["tuned"].get("seeds", 1))


def work_of(config: Config, n_users: int) -> float | None:
    """Local epochs a client trains in the whole run; None for what is not trained on devices."""
    solver = config.part("solver")
    if solver is None:
        return None
    whole = config.run.unit == "pass" or not config.run.cohort
    share = 1.0 if whole else min(1.0, config.run.cohort / n_users)
    return round(config.run.rounds * share * getattr(solver, "epochs", 1), 4)


def users_of(outcomes: list[Outcome], metric: str) -> Figures | None:
    """Each user's figure under each seed, [S, U]; None where a run is missing."""
    if not outcomes or any(o.error for o in outcomes):
        return None
    figures = [o.users() for o in outcomes]
    if any(len(f["clients"]) != len(figures[0]["clients"]) for f in figures):
        raise CoveyError(
            f"the runs in {outcomes[0].folder.parent} measured different clients; remove them and repeat"
        )
    name = f"{'target' if metric in RATIOS else 'test'}/{metric}"
    if any(name not in f for f in figures):
        return None
    return np.stack([f[name].double().numpy() for f in figures])


def store(made: Tree, folder: Path) -> Path:
    """Write a record into a folder and return its file, which is left alone if it already says the same."""
    folder.mkdir(parents=True, exist_ok=True)
    path = file_of(made["paper"], made["table"], made["part"], folder)
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if not _says(path, json.loads(text)):
        atomic.write_text(path, text)
    return path


def _says(path: Path, made: Tree) -> bool:
    """Return whether a file is a record equal to `made`; what is no record is not."""
    try:
        return read(path) == made
    except (OSError, ValueError, LookupError, TypeError):
        return False


def file_of(paper: str, table: str, part: str, folder: Path) -> Path:
    return folder / f"{paper}-{table}{part}.json"
