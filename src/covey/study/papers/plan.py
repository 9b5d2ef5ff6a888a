"""A table or figure of a paper as data: the runs behind each cell, the paper's own numbers, its claims.

A paper is a folder of TOML files, one per table or figure; those of covey are in papers/ at the
root of its source. A run of a cell is the row's method, then the column's presets, then what tuning
found, then the options of table, column, row and cell, each on top of the last.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.evaluate.exposure import RATIOS
from covey.run.config.build import fill
from covey.run.config.compose import compose
from covey.run.config.overrides import changed
from covey.run.config.schema import Config
from covey.run.config.shipped import shipped_folder
from covey.run.config.tree import Tree, assign, merge, parse

from .claims import Claim, is_number
from .folder import papers, papers_folder

Role = Literal["", "floor", "ceiling", "control"]


@dataclass(frozen=True)
class Column:
    """A dataset in a protocol; in a figure, also one value of what is swept."""

    label: str
    dataset: str = "synthetic"
    presets: tuple[str, ...] = ()
    tuning: str = ""  # a folder of configs/tuned: what `covey tune` found for each method
    seeds: int = 0
    set: tuple[str, ...] = ()
    trained: tuple[
        str, ...
    ] = ()  # set over what a row says, but for floors and ceilings, which lack such options
    panel: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Cell:
    """What one cell has of its own."""

    set: tuple[str, ...] = ()
    seeds: int = 0


@dataclass(frozen=True)
class Row:
    label: str
    method: str
    role: Role = ""
    seeds: int = 0
    set: tuple[str, ...] = ()
    trials: int = 0  # of tuning that found what stands in `set`
    columns: tuple[str, ...] = ()  # none: all of them
    swept: bool = True  # false: the same in every column of a figure, as a floor is
    lowest: bool = False  # the lowest of its seeds stands below, where a paper gives no other
    at: dict[str, Any] = field(default_factory=dict)  # column -> Cell
    paper: dict[str, Any] = field(default_factory=dict)  # column -> metric -> the paper's number


@dataclass(frozen=True)
class Sweep:
    """A figure's horizontal axis; every column is multiplied by the values, `{}` in `set` stands for one."""

    label: str
    set: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """What a file may say beside columns, rows, claims and a sweep."""

    title: str
    metrics: tuple[str, ...]
    about: str = ""  # whose numbers stand beside ours
    decimals: int = 4  # to how many digits the paper rounds
    seeds: int = 1
    set: tuple[str, ...] = ()
    told: tuple[
        str, ...
    ] = ()  # of the selected round, by a method's parts: "co-clusters.group"; below each row
    ends: tuple[str, ...] = ()  # the same of the last round
    course: tuple[str, ...] = ()  # test metrics and told numbers to show over the rounds


@dataclass(frozen=True)
class Table:
    paper: str
    name: str
    plan: Plan
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    sweep: Sweep | None = None

    def column(self, label: str) -> Column:
        return next(c for c in self.columns if c.label == label)

    def cells(self) -> Iterator[tuple[Row, Column]]:
        for row in self.rows:
            for column in self.columns:
                if not row.columns or column.label in row.columns or column.panel in row.columns:
                    yield row, column


@dataclass(frozen=True)
class Cut:
    """What a caller wants of a table: all of it, some datasets, or less of everything."""

    quick: bool = False  # one seed, a tenth of the rounds
    datasets: tuple[str, ...] = ()
    set: tuple[str, ...] = ()

    def changed(self) -> bool:
        """Whether an option was set that changes the figures."""
        return any(not text.strip().startswith("engine.") for text in self.set)

    def name(self) -> str:
        """What its record is called beside that of the whole; where and how much at once makes no other."""
        words = [
            *(["quick"] if self.quick else []),
            *self.datasets,
            *(["changed"] if self.changed() else []),
        ]
        return "".join(f"-{word}" for word in words)


WHOLE = Cut()


def tables(paper: str, names: Sequence[str] = (), place: Path | None = None) -> list[Table]:
    """Read the named tables of a paper, or all of them.

    Args:
        paper: The name of a folder in `place`, or the path of any folder of TOML files.
        names: Files of that folder, without `.toml`.
        place: The folder that holds the papers; by default that of a checkout of covey.
    """
    known = papers(place) if papers_folder(place) else {}
    folder = known.get(paper, Path(paper))
    if not folder.is_dir():
        there = ", ".join(papers(place)) or "none"
        raise CoveyError(
            f"there is no paper {paper!r}; there are {there}, or give a folder of TOML files"
        )
    files = {p.stem: p for p in sorted(folder.glob("*.toml"))}
    for name in names:
        if name not in files:
            raise CoveyError(
                f"{folder.name} has no table {name!r}; there are {', '.join(files) or 'none'}"
            )
    if not files:
        raise CoveyError(
            f"{folder} has no tables; write a TOML file for each, as docs/reproducing.md tells"
        )
    return [table(folder.name, name, parse(files[name])) for name in names or files]


def table(paper: str, name: str, tree: Tree) -> Table:
    """A parsed file, if it says all it must and nothing unknown."""
    where = f"{paper} {name}"
    plan = fill(
        Plan, {k: v for k, v in tree.items() if k not in ("column", "row", "claim", "sweep")}, where
    )
    columns = [replace(c, panel=c.panel or c.label) for c in _list(Column, tree, "column", where)]
    rows = _list(Row, tree, "row", where)
    claims = _list(Claim, tree, "claim", where) if "claim" in tree else []
    sweep = fill(Sweep, tree["sweep"], f"{where}, sweep") if "sweep" in tree else None
    if sweep:
        columns = [at for column in columns for at in _swept(column, sweep)]
    made = Table(paper, name, plan, tuple(columns), tuple(rows), tuple(claims), sweep)
    _check(made, where)
    return made


def _list(cls: type[Any], tree: Tree, key: str, where: str) -> list[Any]:
    sections = tree.get(key, [])
    if (
        not isinstance(sections, list)
        or not sections
        or not all(isinstance(s, dict) for s in sections)
    ):
        raise CoveyError(f"{where} has no {key}s; write [[{key}]] for each")
    made = [fill(cls, section, f"{where}, {key} {n}") for n, section in enumerate(sections, 1)]
    labels = [m.label for m in made if hasattr(m, "label")]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise CoveyError(f"{where} has two {key}s named {twice[0]!r}; give each its own label")
    return made


def _swept(column: Column, sweep: Sweep) -> Iterator[Column]:
    for place, value in enumerate(sweep.values):
        x = (
            float(value)
            if isinstance(value, int | float) and not isinstance(value, bool)
            else float(place)
        )
        yield replace(column, label=f"{column.label}, {sweep.label}={value}", x=x)


def _check(made: Table, where: str) -> None:
    known = {*(c.label for c in made.columns), *(c.panel for c in made.columns)}
    labels = {row.label for row in made.rows}
    for row in made.rows:
        for column in (*row.columns, *row.at, *row.paper):
            if column not in known:
                raise CoveyError(
                    f"{where}, row {row.label!r} names column {column!r}; there are {', '.join(known)}"
                )
        for column, cell in row.at.items():
            fill(Cell, cell, f"{where}, row {row.label!r} at {column!r}")
    for claim in made.claims:
        for side in (claim.better, *([] if is_number(claim.worse) else [claim.worse])):
            if side not in labels:
                raise CoveyError(
                    f"{where} claims something of {side!r}; there are {', '.join(labels)}"
                )
        for column in (*claim.columns, *filter(None, [claim.against])):
            if column not in {c.label for c in made.columns}:
                raise CoveyError(
                    f"{where} claims something at {column!r}; there are {', '.join(known)}"
                )
    for row, at in made.cells():
        positive(f"{where}, row {row.label!r}", seeds=seeds_of(made, row, at))


def seeds_of(table: Table, row: Row, column: Column, cut: Cut = WHOLE) -> int:
    if cut.quick:
        return 1
    fewest = min(filter(None, (row.seeds, column.seeds)), default=table.plan.seeds)
    return _cell(row, column).seeds or fewest


def _cell(row: Row, column: Column) -> Cell:
    found = row.at.get(column.label, row.at.get(column.panel, {}))
    return fill(Cell, found, f"row {row.label!r} at {column.label!r}")


def configs(table: Table, row: Row, column: Column, cut: Cut = WHOLE) -> list[Config]:
    """One per seed."""
    tree = compose(row.method, presets=column.presets, dataset=column.dataset)
    tree = merge(tree, tuned(column.tuning, row.method))
    trained = () if row.role in ("floor", "ceiling") else column.trained
    options = [*table.plan.set, *column.set, *row.set, *trained, *_cell(row, column).set]
    if table.sweep and row.swept:
        value = next(
            v for v in table.sweep.values if column.label.endswith(f", {table.sweep.label}={v}")
        )
        options += [text.replace("{}", _toml(value)) for text in table.sweep.set]
    tree = assign(tree, options)
    if cut.quick:
        tree = _quick(tree)
    seeds = range(seeds_of(table, row, column, cut))
    made = [Config.of(assign(changed(tree, cut.set), [f"run.seed={seed}"])) for seed in seeds]
    asked = {
        *table.plan.metrics,
        *table.plan.course,
        *(m for claim in table.claims for m in claim.metrics),
    }
    wanted = {
        metric for metric in asked if "." not in metric
    }  # what parts tell is known when they have run
    if lacks := wanted - measured(made[0]):
        where = (
            "what is pushed in evaluate.targets"
            if min(lacks) in RATIOS
            else "it in evaluate.metrics"
        )
        raise CoveyError(f"row {row.label!r} does not measure {min(lacks)}; name {where}")
    return made


def measured(config: Config) -> set[str]:
    """What a run can be asked for: its metrics, and how far targets are pushed; on pooled data that stays empty."""
    pushed = (
        config.evaluate.targets
        or getattr(config.part("attack"), "targets", ())
        or config.part("pooled")
    )
    return {*config.evaluate.metrics, *(RATIOS if pushed else ())}


def _toml(value: Any) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def tuned(folder: str, method: str) -> Tree:
    """What tuning found for this method; nothing for one that has nothing to tune."""
    if not folder:
        return {}
    path = shipped_folder("tuned") / folder
    path = path if path.is_dir() else Path(folder)
    if not path.is_dir():
        raise CoveyError(
            f"there is no folder of tuned settings {folder!r}; make one with covey tune --write-preset"
        )
    file = path / f"{Path(method).stem}.toml"
    return parse(file) if file.exists() else {}


def _quick(tree: Tree) -> Tree:
    """A tenth of the rounds; what it shows is that everything runs."""
    if "pooled" in tree:
        epochs = tree["pooled"].get("epochs", 10)
        cut = (
            {"pooled": {"epochs": max(1, epochs // 10)}}
            if hasattr(Config.of(tree).part("pooled"), "epochs")
            else {}
        )
        return merge(tree, cut | {"evaluate": {"every": 1}})
    rounds = max(1, tree.get("run", {}).get("rounds", 20) // 10)
    return merge(tree, {"run": {"rounds": rounds}, "evaluate": {"every": min(rounds, 5)}})


def chosen(table: Table, cut: Cut) -> Table:
    """Only the columns of the wanted datasets, and the claims about them."""
    if not cut.datasets:
        return table
    columns = tuple(c for c in table.columns if c.dataset in cut.datasets)
    labels = {c.label for c in columns}
    claims = tuple(c for c in table.claims if {*c.columns, *filter(None, [c.against])} <= labels)
    return dataclasses.replace(table, columns=columns, claims=claims)


def datasets(tables: Iterable[Table]) -> list[str]:
    return sorted({column.dataset for table in tables for column in table.columns})
