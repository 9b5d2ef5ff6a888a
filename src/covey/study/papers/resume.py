"""The cells that a stored record has already, so that a long table can be filled step by step.

A cell is kept if the record has all its seeds, made with the settings of today's plan, and all its
tests. Tests need the figures of single users, which no record has: a cell that is compared with a
missing one is run again, unless one seed is planned. If nothing is to be run, no stored figure is
lost: a cell without runs at hand is kept without the test, also if the plan has changed.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from covey.run.config.schema import Config
from covey.run.config.tree import Tree

from .claims import COUNTS, PairTest, barred, is_number, sides, tests_of
from .comparison import Comparison, too_few
from .plan import Scope, Table
from .settings import configs

Place = tuple[str, str]  # row, column
Cells = dict[Place, Tree]
Runs = Mapping[Place, Sequence[Config]]
Finished = Callable[[Config], bool]
# Keys of a configuration that name a run or its machine and change no result.
NAMES = ("engine", "title", "paper", "method", "preset")
TEST = ("better", "worse", "column", "against", "metric")  # what identifies a test
PLANNED = ("metrics", "told", "ends", "course")  # keys that a record has from its plan
# Defaults of keys that the first records do not have.
LATER = {"part": "", "told": [], "ends": [], "course": []}
LATER_ROW = {"lowest": False}


@dataclass(frozen=True)
class Kept:
    """Cells of a stored record, the tests among them, and what they were made with."""

    cells: Cells = field(default_factory=dict)
    tests: dict[PairTest, Comparison] = field(default_factory=dict)
    commits: frozenset[str] = frozenset()
    machines: frozenset[str] = frozenset()
    command: str = ""  # that made the record, if this one will be written again
    other: frozenset[Place] = frozenset()  # cells with other settings or seeds than the plan's

    def cell(self, place: Place, planned: Tree) -> Tree:
        """Return a kept cell, updated from the plan except for its settings; {} if none."""
        had = self.cells.get(place, {})
        stays = ("config", "tuned") if place in self.other else ("config",)
        return had and had | planned | {name: had[name] for name in stays}


def read(file: Path) -> Tree:
    """Read a record and add the defaults of keys that did not exist when it was written.

    In the first records, tests without a verdict have no counts. Their seeds are those of the cell;
    the number of users is not known, which is written as 0.
    """
    old: Tree = LATER | json.loads(file.read_text(encoding="utf-8"))
    old["rows"] = [LATER_ROW | row for row in old["rows"]]
    cells = {row["label"]: row["cells"] for row in old["rows"]}
    for claim in old["claims"]:
        for test in claim["tests"]:
            if not test.keys() >= set(COUNTS):
                compared = test["difference"] is not None
                seeds = cells[test["better"]][test["column"]]["seeds"] if compared else ()
                test |= {"users": 0, "dropped": 0, "seeds": len(seeds)} | test
    return old


def kept(table: Table, scope: Scope, file: Path, at_hand: Finished | None = None) -> Kept:
    """Return what can be taken from a record for the wanted part of a table.

    `at_hand` tells whether a run is finished; it is None if runs will begin. If none will begin, no
    figure of a record that is written again is lost.
    """
    if not file.exists():
        return Kept()
    old, plan = read(file), table.plan
    again = old["part"] == scope.name() and not scope.changed()
    stays = again and at_hand is not None
    if not stays and any(old[name] != list(getattr(plan, name)) for name in PLANNED):
        return Kept()
    rows = {row["label"]: row["cells"] for row in old["rows"]}
    pairs = ((row, column, (row.label, column.label)) for row, column in table.cells())
    runs = {place: configs(table, row, column, scope) for row, column, place in pairs}
    found = {(row, column): cell for row, column in runs if (cell := rows.get(row, {}).get(column))}
    complete = {
        place: cell
        for place, cell in found.items()
        if settings(cell["config"]) == settings(runs[place][0].tree)
        and cell["seeds"] == [c.run.seed for c in runs[place]]
    }
    asked = list(chain(*map(tests_of, table.claims)))
    tests = [tree for claim in old["claims"] for tree in claim["tests"]]
    stored = {PairTest(*(tree[name] for name in TEST)): tree for tree in tests}
    decided = {test for test, tree in stored.items() if tree["difference"] is not None}
    several = {place for place, configs in runs.items() if len(configs) > 1}
    decidable = [test for test in asked if several.issuperset(sides(test))]
    cells = _closed(complete, decidable, decided)
    if at_hand:
        cells |= _not_at_hand(found if stays else complete, runs, at_hand)
    if not cells:
        return Kept()
    valid = (test for test in asked if test in stored and _valid(test, cells, complete, decided))
    return Kept(
        cells,
        {test: _result(stored[test]) for test in valid},
        commits=frozenset(re.findall(r"\w+(?:, changed)?", old["commit"])),
        machines=frozenset(old["machine"].split("; ")),
        command=old["command"] if again else "",
        other=frozenset(cells.keys() - complete.keys()),
    )


def settings(tree: Tree) -> str:
    """Return a configuration as text that is equal for runs that compute the same."""
    one_pass = {"one_pass": True} if tree.get("engine", {}).get("one_pass") else {}
    return json.dumps({k: v for k, v in tree.items() if k not in NAMES} | one_pass, sort_keys=True)


def _not_at_hand(cells: Cells, runs: Runs, at_hand: Finished) -> Cells:
    """Return the cells with fewer finished runs than the record has seeds."""
    most = {place: min(len(cell["seeds"]), len(runs[place])) for place, cell in cells.items()}
    lacking = [place for place in cells if sum(map(at_hand, runs[place])) < most[place]]
    return {place: cells[place] for place in lacking}


def _result(tree: Tree) -> Comparison:
    """Return the result of a stored test, or the reason why nothing could be compared."""
    found = (tree[name] for name in ("difference", "low", "high", "p"))
    difference, low, high, p = (math.nan if value is None else float(value) for value in found)
    users, dropped, seeds = (int(tree[k]) for k in COUNTS)
    why = tree["reason"]
    if not math.isnan(difference):
        why = too_few(seeds, users or 2)  # figures of whole runs have no users
    return Comparison(difference, low, high, p, users, dropped, seeds, math.nan, math.nan, why)


def _valid(test: PairTest, cells: Cells, complete: Cells, decided: set[PairTest]) -> bool:
    """Return whether a stored test compares the cells that the table will have.

    One without a result is valid if both cells are kept and only figures of users were missing.
    """
    both = sides(test)
    if test in decided:
        every = all(side in cells or side in complete for side in both)
        return every and any(side in cells for side in both)
    if not all(side in cells for side in both):
        return False
    return is_number(test.worse) or not barred(test, *(cells[side] for side in both))


def _closed(cells: Cells, wanted: list[PairTest], decided: set[PairTest]) -> Cells:
    """Return the cells without those that are compared with a cell that will be run."""
    left = dict(cells)
    while True:
        tests = [t for t in wanted if t not in decided or not left.keys() >= {*sides(t)}]
        if not (gone := {side for test in tests for side in sides(test)} & left.keys()):
            return left
        left = {place: cell for place, cell in left.items() if place not in gone}
