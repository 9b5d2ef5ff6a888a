"""Item maps of finished runs side by side, such as Figure 2 of Yuan et al. (2024)."""

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
from covey.study.report.data import Run, read_run, unique_names
from covey.study.report.items import catalogue_of, table_of

from . import maps
from .targets import rows_of, with_names


def atlas(
    folders: Sequence[Path], hot: int, targets: str, axes: Literal["own", "first"]
) -> tuple[list[dict[str, Any]], str]:
    """Draw a map for each run folder; return the figures of each as plain data, and the page.

    The `hot` most popular items are marked, and `targets` as a user names them. Each map has the
    directions of its own table or those of the first.
    """
    runs = [read_run(folder) for folder in folders]
    found = [_table(run) for run in runs]
    known, name = catalogue_of(runs[0], len(found[0])), runs[0].result["dataset"]["name"]
    n_items = len(known.count_I)
    if any(len(table) != n_items for table in found):
        raise CoveyError("these runs have different items; give runs on one dataset")
    rows = rows_of(targets, known.ids, n_items, name) if targets else ()
    items = maps.Items(known.count_I, with_names(known.titles, known.ids, rows), rows, hot)
    common = None
    if axes == "first":
        if any(table.shape != found[0].shape for table in found):
            raise CoveyError("tables of different width share no directions; use --axes own")
        common = maps.Directions.of(found[0])
    drawn = [
        maps.Map.of(name, table, items, common) for name, table in zip(unique_names(runs), found)
    ]
    within = maps.frame(drawn, items) if common else None
    where = f"the two directions of {'the first' if common else 'its own'} table"
    what = f"Each map shows items in {where} with most of the variance."
    text = [
        tag("p", f"{what} Point at a dot for its title."),
        tag("p", f"Titles and popularity are missing: {known.note}.") if known.note else None,
    ]
    shown = [*text, maps.key(items), maps.row(drawn, items, within)]
    page = page_shell.page(f"Item maps on {name}", *shown)
    return [one.plain() for one in drawn], page


def record(
    folders: Sequence[Path], figures: Sequence[dict[str, Any]], hot: int, targets: str, axes: str
) -> dict[str, Any]:
    """Return the figures of the maps with the configuration of each run; see `atlas`."""
    runs = [read_run(folder) for folder in folders]
    about = [{key: run.result[key] for key in ("seed", "rounds", "config")} for run in runs]
    words = [*(folder.name for folder in folders), f"--hot {hot}"]
    words += [f"--axes {axes}"] if axes != "own" else []
    words += [f"--targets {shlex.quote(targets)}"] if targets else []
    return {
        "format": "covey maps 1",
        "dataset": runs[0].result["dataset"]["name"],
        "hot": hot,
        "maps": [one | other for one, other in zip(figures, about)],
        "command": f"covey maps {' '.join(words)}",
        "commit": commit(),
        "machine": machine("cpu"),
    }


def markdown(made: Mapping[str, Any]) -> str:
    """Return the record as Markdown for the docs."""
    head = [f"items of {made['dataset']}", f"mean cosine of the {made['hot']} most popular"]
    head += ["of all", "two directions hold"]
    rows = []
    for one in made["maps"]:
        cosines = (f"{one[f'mean_cosine_{of}']:.3f}" for of in ("popular", "all"))
        rows.append([one["name"], *cosines, f"{one['explained']:.0%}"])
    where = f"{code(made['command'])}, commit {made['commit']}, {made['machine']}."
    return f"{tables.markdown(head, rows)}\n\n{where}"


def _table(run: Run) -> Any:
    path = run.folder / MODEL
    table_ID = table_of(load_model(path)) if path.exists() else None
    if table_ID is None:
        raise CoveyError(f"{run.folder} has no public item table to map; leave it out")
    return table_ID
