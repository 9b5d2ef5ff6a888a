"""The configurations behind a cell of a table.

A configuration is the row's method with, in this order, the column's presets, the tuned settings,
and the options of table, column, row and cell; each overrides those before it.
"""

from pathlib import Path

from covey.core.errors import CoveyError
from covey.core.toml_writer import dumps
from covey.evaluate.exposure import RATIOS
from covey.run.config.compose import compose
from covey.run.config.overrides import changed
from covey.run.config.schema import Config
from covey.run.config.shipped import shipped_folder
from covey.run.config.tree import Tree, assign, merge, parse

from .plan import WHOLE, Column, Row, Scope, Table, cell_of, seeds_of


def configs(table: Table, row: Row, column: Column, scope: Scope = WHOLE) -> list[Config]:
    """Return the configuration of a cell for each of its seeds."""
    name, dataset = row.method_name, column.dataset
    tree = compose(row.method, label=name, presets=column.presets, dataset=dataset)
    tree = merge(tree, tuned(column.tuning, name))
    trained = () if row.role in ("floor", "ceiling") else column.trained
    options = [*table.plan.set, *column.set, *row.set, *trained, *cell_of(row, column).set]
    if (sweep := table.sweep) and row.swept:
        value = next(v for v in sweep.values if column.label.endswith(f", {sweep.label}={v}"))
        literal = dumps({"x": value}).strip().removeprefix("x = ")
        options += [text.replace("{}", literal) for text in sweep.set]
    tree = assign(tree, options)
    if scope.quick:
        tree = _quick(tree)
    seeds = range(seeds_of(table, row, column, scope))
    made = [Config.of(assign(changed(tree, scope.set), [f"run.seed={seed}"])) for seed in seeds]
    claimed = (metric for claim in table.claims for metric in claim.metrics)
    asked = {*table.plan.metrics, *table.plan.course, *claimed}
    wanted = {metric for metric in asked if "." not in metric}  # others are known after a run only
    if lacks := wanted - measured(made[0]):
        where = "it in evaluate.metrics"
        if min(lacks) in RATIOS:
            where = "the targets in evaluate.targets"
        raise CoveyError(f"row {row.label!r} does not measure {min(lacks)}; name {where}")
    return made


def measured(config: Config) -> set[str]:
    """Return the metrics of a run; the exposure of targets stays empty on pooled data."""
    targets = config.evaluate.targets or getattr(config.part("attack"), "targets", ())
    return {*config.evaluate.metrics, *(RATIOS if targets or config.part("pooled") else ())}


def tuned(folder: str, method: str) -> Tree:
    """Return the tuned settings of a method, or {} if it was not tuned."""
    if not folder:
        return {}
    path = shipped_folder("tuned") / folder
    path = path if path.is_dir() else Path(folder)
    if not path.is_dir():
        hint = "make one with covey tune --write-preset"
        raise CoveyError(f"there is no folder of tuned settings {folder!r}; {hint}")
    file = path / f"{method}.toml"
    return parse(file) if file.exists() else {}


def _quick(tree: Tree) -> Tree:
    """Cut the rounds to a tenth, which only shows that everything runs."""
    if "pooled" not in tree:
        rounds = max(1, tree.get("run", {}).get("rounds", 20) // 10)
        return merge(tree, {"run": {"rounds": rounds}, "evaluate": {"every": min(rounds, 5)}})
    fewer: Tree = {"evaluate": {"every": 1}}
    if hasattr(Config.of(tree).part("pooled"), "epochs"):
        fewer["pooled"] = {"epochs": max(1, tree["pooled"].get("epochs", 10) // 10)}
    return merge(tree, fewer)
