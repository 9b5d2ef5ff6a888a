"""A table or figure of a paper as data: the runs behind each cell, the paper's figures, its claims.

A paper is a folder of TOML files, one for each table or figure. The papers that covey reproduces
are in the folder papers at the root of its source. Its folder methods has the settings with which
the stored records were made; the shipped methods have others since then.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from covey.core import CoveyError, positive
from covey.run.config.build import fill
from covey.run.config.tree import Tree, parse

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
    trained: tuple[str, ...] = ()  # options that override a row's; floors and ceilings lack them
    panel: str = ""
    x: float | None = None


@dataclass(frozen=True)
class Cell:
    """Options of a single cell."""

    set: tuple[str, ...] = ()
    seeds: int = 0


@dataclass(frozen=True)
class Row:
    label: str
    method: str  # a shipped one by name, or the path of a TOML file as seen from the table's folder
    role: Role = ""
    seeds: int = 0
    set: tuple[str, ...] = ()
    trials: int = 0  # of the tuning that found the options in `set`
    columns: tuple[str, ...] = ()  # empty for all of them
    swept: bool = True  # false: the same in every column of a figure, such as a floor
    lowest: bool = False  # show the lowest of the seeds below, for papers that give only this
    at: dict[str, Any] = field(default_factory=dict)  # column -> Cell
    paper: dict[str, Any] = field(default_factory=dict)  # column -> metric -> the paper's figure

    @property
    def method_name(self) -> str:
        return Path(self.method).stem


@dataclass(frozen=True)
class Sweep:
    """A horizontal axis: columns are repeated for each value, which replaces `{}` in `set`."""

    label: str
    set: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """The keys of a file besides columns, rows, claims and a sweep."""

    title: str
    metrics: tuple[str, ...]
    about: str = ""  # the source of the paper's figures
    decimals: int = 4  # of the paper's figures
    seeds: int = 1
    set: tuple[str, ...] = ()
    told: tuple[str, ...] = ()  # extra metrics at the selected round, such as "co-clusters.group"
    ends: tuple[str, ...] = ()  # extra metrics at the last round
    course: tuple[str, ...] = ()  # metrics, also extra ones, to show over the rounds


@dataclass(frozen=True)
class Table:
    paper: str
    name: str
    plan: Plan
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    sweep: Sweep | None = None

    def cells(self) -> Iterator[tuple[Row, Column]]:
        for row in self.rows:
            for column in self.columns:
                if not row.columns or column.label in row.columns or column.panel in row.columns:
                    yield row, column


@dataclass(frozen=True)
class Scope:
    """The part of a table that a user asks for: all of it, some datasets, or shorter runs."""

    quick: bool = False  # one seed, a tenth of the rounds
    datasets: tuple[str, ...] = ()
    set: tuple[str, ...] = ()

    def changed(self) -> bool:
        """Return whether an option may change the figures, as all but those of [engine] may."""
        return any(not text.strip().startswith("engine.") for text in self.set)

    def name(self) -> str:
        """Return the suffix of the record's name; "" for a whole table."""
        words = ["quick"] * self.quick + list(self.datasets) + ["changed"] * self.changed()
        return "".join(f"-{word}" for word in words)


WHOLE = Scope()


def tables(paper: str, names: Sequence[str] = (), place: Path | None = None) -> list[Table]:
    """Read the named tables of a paper, or all of them.

    `paper` is the name of a folder in `place` (by default in a checkout of covey), or the path of
    any folder of TOML files, whose names are given without `.toml`.
    """
    known = papers(place) if papers_folder(place) else {}
    folder = known.get(paper, Path(paper))
    if not folder.is_dir():
        there = f"there are {', '.join(papers(place)) or 'none'}, or give a folder of TOML files"
        raise CoveyError(f"there is no paper {paper!r}; {there}")
    files = {p.stem: p for p in sorted(folder.glob("*.toml"))}
    for name in names:
        if name not in files:
            there = f"there are {', '.join(files) or 'none'}"
            raise CoveyError(f"{folder.name} has no table {name!r}; {there}")
    if not files:
        hint = "write a TOML file for each; docs/reproducing.md explains how"
        raise CoveyError(f"{folder} has no tables; {hint}")
    return [table(folder.name, name, parse(files[name]), folder) for name in names or files]


def table(paper: str, name: str, tree: Tree, folder: Path = Path()) -> Table:
    """Return the parsed file of a table in `folder`; refuse missing and unknown keys."""
    where, parts = f"{paper} {name}", ("column", "row", "claim", "sweep")
    plan = fill(Plan, {k: v for k, v in tree.items() if k not in parts}, where)
    columns = [replace(c, panel=c.panel or c.label) for c in _list(Column, tree, "column", where)]
    rows = [
        replace(row, method=str(folder / row.method)) if row.method.endswith(".toml") else row
        for row in _list(Row, tree, "row", where)
    ]
    claims = _list(Claim, tree, "claim", where) if "claim" in tree else []
    sweep = fill(Sweep, tree["sweep"], f"{where}, sweep") if "sweep" in tree else None
    if sweep:
        columns = [at for column in columns for at in _swept(column, sweep)]
    made = Table(paper, name, plan, tuple(columns), tuple(rows), tuple(claims), sweep)
    _check(made, where)
    return made


def _list(cls: type[Any], tree: Tree, key: str, where: str) -> list[Any]:
    sections = tree.get(key, [])
    listed = isinstance(sections, list) and all(isinstance(s, dict) for s in sections)
    if not sections or not listed:
        raise CoveyError(f"{where} has no {key}s; write [[{key}]] for each")
    made = [fill(cls, section, f"{where}, {key} {n}") for n, section in enumerate(sections, 1)]
    labels = [m.label for m in made if hasattr(m, "label")]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise CoveyError(f"{where} has two {key}s named {twice[0]!r}; give each its own label")
    return made


def _swept(column: Column, sweep: Sweep) -> Iterator[Column]:
    for place, value in enumerate(sweep.values):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        x = float(value if number else place)
        yield replace(column, label=f"{column.label}, {sweep.label}={value}", x=x)


def _check(made: Table, where: str) -> None:
    known = {*(c.label for c in made.columns), *(c.panel for c in made.columns)}
    labels = {row.label for row in made.rows}
    there = f"there are {', '.join(known)}"
    for row in made.rows:
        for column in (*row.columns, *row.at, *row.paper):
            if column not in known:
                raise CoveyError(f"{where}, row {row.label!r} names column {column!r}; {there}")
        for column, cell in row.at.items():
            fill(Cell, cell, f"{where}, row {row.label!r} at {column!r}")
    for claim in made.claims:
        for side in (claim.better, *([] if is_number(claim.worse) else [claim.worse])):
            if side not in labels:
                rows = f"there are {', '.join(labels)}"
                raise CoveyError(f"{where} claims something of {side!r}; {rows}")
        for column in (*claim.columns, *filter(None, [claim.against])):
            if column not in {c.label for c in made.columns}:
                raise CoveyError(f"{where} claims something at {column!r}; {there}")
    for row, at in made.cells():
        positive(f"{where}, row {row.label!r}", seeds=seeds_of(made, row, at))


def seeds_of(table: Table, row: Row, column: Column, scope: Scope = WHOLE) -> int:
    """Return the number of seeds of a cell."""
    if scope.quick:
        return 1
    fewest = min(filter(None, (row.seeds, column.seeds)), default=table.plan.seeds)
    return cell_of(row, column).seeds or fewest


def cell_of(row: Row, column: Column) -> Cell:
    """Return the options of a cell."""
    found = row.at.get(column.label, row.at.get(column.panel, {}))
    return fill(Cell, found, f"row {row.label!r} at {column.label!r}")


def selected(table: Table, scope: Scope) -> Table:
    """Return a table with the columns of the wanted datasets, and the claims about them."""
    if not scope.datasets:
        return table
    columns = tuple(c for c in table.columns if c.dataset in scope.datasets)
    labels = {c.label for c in columns}
    claims = tuple(c for c in table.claims if {*c.columns, *filter(None, [c.against])} <= labels)
    return replace(table, columns=columns, claims=claims)


def datasets(tables: Iterable[Table]) -> list[str]:
    return sorted({column.dataset for table in tables for column in table.columns})
