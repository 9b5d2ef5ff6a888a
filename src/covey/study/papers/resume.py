"""What a stored record already has, so that a long table can be filled over many days and machines.

A cell is kept if the record has all its seeds, with the settings that it would be run with now, and all tests that
it takes part in. Tests need the figures of single users, which no record holds: a cell that is compared with one that
is missing is run again, unless one seed is planned, which decides nothing. Where nothing is to be run, its runs are
taken if they are at hand; if not, the cell is kept and the test left open.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from covey.run.config.schema import Config
from covey.run.config.tree import Tree

from .claims import COUNTS, Outcome, is_number, tests_of
from .comparison import Comparison, too_few
from .plan import Cut, Table, configs

Place = tuple[str, str]  # row, column


@dataclass(frozen=True)
class Kept:
    """Cells of a stored record, the tests among them, and what they were made with."""

    cells: dict[Place, Tree] = field(default_factory=dict)
    tests: dict[Outcome, Comparison] = field(default_factory=dict)
    commits: frozenset[str] = frozenset()
    machines: frozenset[str] = frozenset()


def kept(table: Table, cut: Cut, file: Path, at_hand: Callable[[Config], bool] | None = None) -> Kept:
    """What can be taken from that file for a table whose columns are already cut.

    `at_hand`, which runs are finished, is given where none will begin.
    """
    if not file.exists():
        return Kept()
    old: Tree = json.loads(file.read_text(encoding="utf-8"))
    plan = table.plan
    if any(old[k] != list(getattr(plan, k)) for k in ("metrics", "told", "ends", "course")):
        return Kept()
    by_label = {row["label"]: row["cells"] for row in old["rows"]}
    runs = {(row.label, column.label): configs(table, row, column, cut) for row, column in table.cells()}
    had: dict[Place, Tree] = {
        (row, column): cell
        for (row, column), wanted in runs.items()
        if (cell := by_label.get(row, {}).get(column)) and _complete(cell, wanted)
    }
    stored = {key: found for claim in old["claims"] for t in claim["tests"] for key, found in _stored(t)}
    asked = [test for claim in table.claims for test in tests_of(claim)]
    decidable = [test for test in asked if all(len(runs.get(side, ())) > 1 for side in _sides(test))]
    cells = _closed(had, decidable, stored)
    if at_hand:
        cells |= {place: cell for place, cell in had.items() if not all(map(at_hand, runs[place]))}
    both = [test for test in asked if test in stored and all(s in had for s in _sides(test))]
    tests = {test: stored[test] for test in both if any(s in cells for s in _sides(test))}
    if not cells:
        return Kept()
    commits = re.findall(r"\w+(?:, changed)?", old["commit"])
    return Kept(cells, tests, frozenset(commits), frozenset(old["machine"].split("; ")))


def _complete(cell: Tree, wanted: list[Config]) -> bool:
    """All seeds, with the settings of today; where it was computed is not among them."""
    same: Callable[[Tree], str] = lambda tree: json.dumps(tree | {"engine": {}}, sort_keys=True)
    return cell["seeds"] == [c.run.seed for c in wanted] and same(cell["config"]) == same(wanted[0].tree)


def _stored(test: Tree) -> list[tuple[Outcome, Comparison]]:
    """A test of a record and its result, if it has one with all its numbers."""
    if test["difference"] is None or "seeds" not in test:
        return []
    known = lambda name: math.nan if test[name] is None else float(test[name])
    low, high, p, (users, dropped, seeds) = *map(known, ("low", "high", "p")), (int(test[k]) for k in COUNTS)
    why = too_few(seeds, users or 2)  # no users: figures of whole runs
    found = Comparison(test["difference"], low, high, p, users, dropped, seeds, math.nan, math.nan, why)
    return [(Outcome(*(test[k] for k in ("better", "worse", "column", "against", "metric"))), found)]


def _sides(test: Outcome) -> list[Place]:
    there = (test.better, test.column)
    return [there] if is_number(test.worse) else [there, (test.worse, test.against)]


def _closed(cells: dict[Place, Tree], wanted: list[Outcome], stored: dict[Outcome, Comparison]) -> dict[Place, Tree]:
    """Without those that are compared with a cell that will be run anew."""
    left = dict(cells)
    while gone := {
        side
        for test in wanted
        if test not in stored or any(s not in left for s in _sides(test))
        for side in _sides(test)
        if side in left
    }:
        left = {place: cell for place, cell in left.items() if place not in gone}
    return left
