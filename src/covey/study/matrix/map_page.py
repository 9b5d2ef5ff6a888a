"""Maps of finished runs beside each other, such as Figure 2 of Yuan et al. (2024)."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from covey.core.errors import CoveyError
from covey.core.provenance import commit, machine
from covey.run.checkpoint import MODEL, load_model
from covey.study.render import page_shell, tables
from covey.study.render.markup import tag
from covey.study.render.units import code
from covey.study.report.data import Run, read_run
from covey.study.report.items import catalogue_of, table_of

from . import maps
from .targets import rows_of, with_names


def atlas(
    folders: Sequence[Path], hot: int, targets: str, axes: Literal["own", "first"]
) -> tuple[list[dict[str, Any]], str]:
    """What is said of each map, and the page with all of them.

    `targets` are items as a user names them, or empty.
    """
    runs = [read_run(folder) for folder in folders]
    found = [_table(run) for run in runs]
    known, name = catalogue_of(runs[0], len(found[0])), runs[0].result["dataset"]["name"]
    n_items = len(known.count_I)
    if any(len(table) != n_items for table in found):
        wrong = "these runs have different items"
        raise CoveyError(f"{wrong}; maps beside each other are of one dataset")
    rows = rows_of(targets, known.ids, n_items, name) if targets else ()
    items = maps.Items(known.count_I, with_names(known.titles, known.ids, rows), rows, hot)
    common = None
    if axes == "first":
        if any(table.shape != found[0].shape for table in found):
            wrong = "tables of different width have no directions in common"
            raise CoveyError(f"{wrong}; use --axes own")
        common = maps.Directions.of(found[0])
    drawn = [maps.Map.of(name, table, items, common) for name, table in zip(_names(runs), found)]
    within = maps.frame(drawn, items) if common else None
    where = f"the two directions of {'the first' if common else 'its own'} table"
    what = f"Each map shows items in {where} that hold most of the variance."
    said = [
        tag("p", f"{what} Point at a dot for its title."),
        tag("p", f"Titles and popularity are missing: {known.note}.") if known.note else None,
    ]
    shown = [*said, maps.key(items), maps.row(drawn, items, within)]
    page = page_shell.page(f"Item maps on {name}", *shown)
    return [one.plain() for one in drawn], page


def record(
    folders: Sequence[Path], said: Sequence[dict[str, Any]], hot: int, targets: str, axes: str
) -> dict[str, Any]:
    """What is said of the maps, with what each run was."""
    runs = [read_run(folder) for folder in folders]
    about = [{key: run.result[key] for key in ("seed", "rounds", "config")} for run in runs]
    words = [
        *(folder.name for folder in folders),
        f"--hot {hot}",
        *([f"--axes {axes}"] if axes != "own" else []),
    ]
    words += [f"--targets {shlex.quote(targets)}"] if targets else []
    return {
        "format": "covey maps 1",
        "dataset": runs[0].result["dataset"]["name"],
        "hot": hot,
        "maps": [one | other for one, other in zip(said, about)],
        "command": f"covey maps {' '.join(words)}",
        "commit": commit(),
        "machine": machine("cpu"),
    }


def markdown(made: Mapping[str, Any]) -> str:
    """For a page of the docs."""
    head = [
        f"items of {made['dataset']}",
        f"mean cosine of the {made['hot']} most popular",
        "of all",
        "two directions hold",
    ]
    rows = [
        [
            one["name"],
            f"{one['mean_cosine_popular']:.3f}",
            f"{one['mean_cosine_all']:.3f}",
            f"{one['explained']:.0%}",
        ]
        for one in made["maps"]
    ]
    where = f"{code(made['command'])}, commit {made['commit']}, {made['machine']}."
    return f"{tables.markdown(head, rows)}\n\n{where}"


def _table(run: Run) -> Any:
    path = run.folder / MODEL
    table_ID = table_of(load_model(path)) if path.exists() else None
    if table_ID is None:
        raise CoveyError(f"{run.folder} has no public item table to map; leave it out")
    return table_ID


def _names(runs: Sequence[Run]) -> list[str]:
    """By method; runs of one method by their folders too."""
    labels = [run.label for run in runs]
    return [
        label if labels.count(label) == 1 else f"{label} ({run.folder.resolve().name})"
        for run, label in zip(runs, labels)
    ]
