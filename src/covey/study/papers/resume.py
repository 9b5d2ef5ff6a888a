"""What a stored record already has, so that a long table can be filled over many days and machines.

A cell is kept if the record has all its seeds, with the settings that it would be run with now, and all tests that
it takes part in. Tests need the figures of single users, which no record holds: a cell that is compared with one that
is missing is run again, unless one seed is planned, which decides nothing. Where nothing is to be run, its runs are
taken if they are at hand; if not, the cell is kept and the test left open. A cell that is planned with other settings
today is kept then too, so that no stored figure is lost because its runs are not at hand.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from covey.run.config.schema import Config
from covey.run.config.tree import Tree

from .claims import COUNTS, Outcome, barred, is_number, tests_of
from .comparison import Comparison, too_few
from .plan import Cut, Table, configs

Place = tuple[str, str]  # row, column
Cells = dict[Place, Tree]
Runs = Mapping[Place, Sequence[Config]]
# Keys of a configuration that say where a run was made and what it is called, not what it computes.
NAMES = ("engine", "title", "paper", "method", "preset")
# Defaults of keys that the first records do not have.
LATER = {"part": "", "told": [], "ends": [], "course": []}
LATER_ROW = {"lowest": False}


@dataclass(frozen=True)
class Kept:
    """Cells of a stored record, the tests among them, and what they were made with."""

    cells: Cells = field(default_factory=dict)
    tests: dict[Outcome, Comparison] = field(default_factory=dict)
    commits: frozenset[str] = frozenset()
    machines: frozenset[str] = frozenset()
    command: str = ""  # by which the record was made that is to be written again
    other: frozenset[Place] = frozenset()  # cells with other settings or seeds than the plan's

    def cell(self, place: Place, planned: Tree) -> Tree:
        """Return a kept cell, updated from the plan except for the settings of its run; {} if none."""
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


def kept(
    table: Table, cut: Cut, file: Path, at_hand: Callable[[Config], bool] | None = None
) -> Kept:
    """What can be taken from that file for a table whose columns are already cut.

    `at_hand` tells whether a run is finished, and is given only where no run will begin. If the
    record in `file` is also the one that will be written, none of its figures is lost then.
    """
    if not file.exists():
        return Kept()
    old, plan = read(file), table.plan
    again = old["part"] == cut.name() and not cut.changed()
    stays = again and at_hand is not None
    if not stays and any(
        old[k] != list(getattr(plan, k)) for k in ("metrics", "told", "ends", "course")
    ):
        return Kept()
    rows = {row["label"]: row["cells"] for row in old["rows"]}
    runs = {
        (row.label, column.label): configs(table, row, column, cut) for row, column in table.cells()
    }
    found = {(row, column): cell for row, column in runs if (cell := rows.get(row, {}).get(column))}
    complete = {place: cell for place, cell in found.items() if _complete(cell, runs[place])}
    asked = [test for claim in table.claims for test in tests_of(claim)]
    stored = {_test(tree): tree for claim in old["claims"] for tree in claim["tests"]}
    decided = {test for test, tree in stored.items() if tree["difference"] is not None}
    decidable = [
        test for test in asked if all(len(runs.get(side, ())) > 1 for side in _sides(test))
    ]
    cells = _closed(complete, decidable, decided)
    if at_hand:
        cells |= _not_at_hand(found if stays else complete, runs, at_hand)
    if not cells:
        return Kept()
    standing = [
        test for test in asked if test in stored and _stands(test, cells, complete, decided)
    ]
    return Kept(
        cells,
        {test: _result(stored[test]) for test in standing},
        commits=frozenset(re.findall(r"\w+(?:, changed)?", old["commit"])),
        machines=frozenset(old["machine"].split("; ")),
        command=old["command"] if again else "",
        other=frozenset(cells.keys() - complete.keys()),
    )


def settings(tree: Tree) -> str:
    """Return a configuration as text that is equal for runs that compute the same."""
    return json.dumps({k: v for k, v in tree.items() if k not in NAMES}, sort_keys=True)


def _complete(cell: Tree, wanted: Sequence[Config]) -> bool:
    """All seeds, with the settings of today."""
    same = settings(cell["config"]) == settings(wanted[0].tree)
    return same and cell["seeds"] == [c.run.seed for c in wanted]


def _not_at_hand(cells: Cells, runs: Runs, at_hand: Callable[[Config], bool]) -> Cells:
    """Return the cells of which fewer runs are finished than the record has seeds."""
    most = {place: min(len(cell["seeds"]), len(runs[place])) for place, cell in cells.items()}
    return {
        place: cell for place, cell in cells.items() if sum(map(at_hand, runs[place])) < most[place]
    }


def _test(tree: Tree) -> Outcome:
    return Outcome(*(tree[k] for k in ("better", "worse", "column", "against", "metric")))


def _result(tree: Tree) -> Comparison:
    """Return the result of a stored test, or the reason why nothing could be compared."""
    known = lambda name: math.nan if tree[name] is None else float(tree[name])
    difference, low, high, p = map(known, ("difference", "low", "high", "p"))
    users, dropped, seeds = (int(tree[k]) for k in COUNTS)
    why = (
        tree["reason"] if math.isnan(difference) else too_few(seeds, users or 2)
    )  # no users: figures of whole runs
    return Comparison(difference, low, high, p, users, dropped, seeds, math.nan, math.nan, why)


def _stands(test: Outcome, cells: Cells, complete: Cells, decided: set[Outcome]) -> bool:
    """Return whether a stored test compares the cells that the table will have.

    A test without a result stands if both of its cells are kept and only the figures of single
    users were missing; a reason that lies in settings is found again by judging the cells.
    """
    sides = _sides(test)
    if test in decided:
        return any(side in cells for side in sides) and all(
            side in cells or side in complete for side in sides
        )
    if not all(side in cells for side in sides):
        return False
    return is_number(test.worse) or not barred(test, *(cells[side] for side in sides))


def _sides(test: Outcome) -> list[Place]:
    there = (test.better, test.column)
    return [there] if is_number(test.worse) else [there, (test.worse, test.against)]


def _closed(cells: Cells, wanted: list[Outcome], decided: set[Outcome]) -> Cells:
    """Without those that are compared with a cell that will be run anew."""
    left = dict(cells)
    while gone := {
        side
        for test in wanted
        if test not in decided or any(s not in left for s in _sides(test))
        for side in _sides(test)
        if side in left
    }:
        left = {place: cell for place, cell in left.items() if place not in gone}
    return left
