"""Loads datasets by name; reads <root>/<name>/interactions.csv.gz, and items.csv.gz with titles.

Columns: user, item, timestamp (a clock) or order (the position in that user's history), and split
(train, valid, test) if the data have their own. Other columns are ignored; every row is one
interaction.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from covey.core.errors import CoveyError

from . import cache
from .cache import available, unknown
from .dataset import Array, Dataset, check, select, with_titles
from .settings import DEFAULT_FILTERS as DEFAULT_FILTERS
from .settings import Filter as Filter
from .synthetic import Synthetic, generate
from .tables.columns import Columns
from .tables.importing import read_table
from .tables.reader import open_table

TITLED = ("item", "title")  # columns of the file of titles


def load(
    name: str | Path,
    root: str | Path | None = None,
    filter: Filter | None = None,
    options: Synthetic | None = None,
) -> Dataset:
    """Loads "synthetic" with its options, a prepared .npz file, or a dataset by its name.

    It is looked for under `root`, by default $COVEY_DATA, and in the cache. By default, the rows
    are filtered as the papers do it (`DEFAULT_FILTERS`); `Filter()` keeps every row.
    """
    place = cache.find(str(name), root)
    if place is None:
        return apply_filter(generate(options or Synthetic()), filter or Filter())
    if str(name).endswith(".npz"):
        return apply_filter(Dataset.load(place), filter or Filter())
    dataset = read(place.name, place.parent) if place.is_dir() else Dataset.load(place)
    return apply_filter(dataset, filter or DEFAULT_FILTERS.get(dataset.name, Filter()))


def read(name: str, root: str | Path) -> Dataset:
    """Reads a dataset without filtering it."""
    if name not in (names := available(root)):
        raise CoveyError(unknown(name, names, root))
    path = _table(Path(root) / name / "interactions")
    assert path is not None
    with open_table(path, ",", "utf-8-sig") as table:
        times = [kind for kind in ("timestamp", "order") if kind in table.header]
        split = "split" if "split" in table.header else None
        columns = Columns("user", "item", times[0] if times else "", "", split=split)
        # The order counts as a fraction of a second, so that equal times are in that order.
        columns = replace(columns, order=times[1] if len(times) == 2 else None)
        dataset = read_table(table, name, columns, str(path))[0].dataset
    if items := _table(Path(root) / name / "items"):
        with open_table(items, ",", "utf-8-sig") as table:
            i, n = (columns.needed(table.header, kind, kind, str(items)) for kind in TITLED)
            titles = [pair for chunk in table.chunks for pair in zip(chunk(i), chunk(n))]
        dataset = with_titles(dataset, titles)
    return check(dataset)


def apply_filter(dataset: Dataset, filter: Filter) -> Dataset:
    """Keeps the rows that pass and renumbers ids by first appearance."""
    if filter == Filter():
        return dataset
    keep_E = np.ones(len(dataset), bool)
    keep_E[: int(filter.drop_first_line)] = False
    both = dataset.item_E, dataset.user_E
    _keep(keep_E, both, (filter.min_item, filter.min_user))
    while filter.core and _keep(keep_E, both, (filter.core, filter.core)):
        pass  # a dropped user may leave an item with too few rows, and so on
    return check(select(dataset, keep_E))


def _keep(keep_E: Array, ids: tuple[Array, Array], least: tuple[int, int]) -> bool:
    """Clears the rows of rare ids, of one kind after the other; returns whether there were any."""
    before = int(keep_E.sum())
    for id_E, count in zip(ids, least):
        keep_E &= np.bincount(id_E[keep_E], minlength=int(id_E.max(initial=0)) + 1)[id_E] >= count
    return int(keep_E.sum()) < before


def _table(stem: Path) -> Path | None:
    paths = [stem.with_name(stem.name + end) for end in (".csv.gz", ".csv")]
    return next((path for path in paths if path.is_file()), None)
