"""Make the matrix of a method: every attack against every defence, as record and item maps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from covey.core.errors import CoveyError
from covey.data.naming import ids_of
from covey.run.assemble import prepare
from covey.run.config.tree import Tree
from covey.study.batch import Progress
from covey.study.report.items import table_of, titles_of

from . import map_page as maps
from .formatting import Record, labels
from .parts import NOBODY, NOTHING
from .plan import Plan, with_names
from .record import record, run_all, tables_of

Tables = Mapping[tuple[str, str], Tensor]
Found = tuple[Tree, maps.Items, list[maps.Row]]


def matrix(plan: Plan, work: Path, k: int, jobs: int, progress: Progress) -> Found:
    """Run the pairs that have not been run yet; return the record, the items to mark, and the maps.

    `k` is the cut-off of ER by which the best defence is chosen.
    """
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
