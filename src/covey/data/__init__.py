"""Datasets and their splits; the function that splits is covey.data.split.split."""

import os
from pathlib import Path

from covey.core.errors import CoveyError
from covey.data.tables.reader import TABLES

from . import cache, folder
from .dataset import Dataset, check
from .folder import DEFAULT_FILTERS, Filter, apply_filter
from .public import registry
from .split import Split, SplitConfig, candidates, pool
from .synthetic import Synthetic, generate

__all__ = [
    "DEFAULT_FILTERS",
    "Dataset",
    "Filter",
    "Split",
    "SplitConfig",
    "Synthetic",
    "apply_filter",
    "candidates",
    "check",
    "generate",
    "load",
    "pool",
]


def load(
    name: str | Path,
    root: str | Path | None = None,
    filter: Filter | None = None,
    options: Synthetic | None = None,
) -> Dataset:
    """A dataset by name: 'synthetic', a prepared .npz file, a folder under root or $COVEY_DATA, or one in the cache.

    Without a filter, a known dataset gets the one the papers use for it (DEFAULT_FILTERS); Filter() keeps every row.
    """
    if name == "synthetic":
        return apply_filter(generate(options or Synthetic()), filter or Filter())
    if str(name).endswith(".npz"):
        return apply_filter(Dataset.load(name), filter or Filter())
    dataset = _find(str(name), root)
    return apply_filter(
        dataset, DEFAULT_FILTERS.get(dataset.name, Filter()) if filter is None else filter
    )


def _find(name: str, root: str | Path | None) -> Dataset:
    where = root or os.environ.get("COVEY_DATA")
    if where and not Path(where).is_dir():
        raise CoveyError(
            f"no folder {where} to read dataset '{name}' from; set COVEY_DATA=/path/to/data"
        )
    if where and name in folder.available(where):
        return folder.read(name, where)
    kept = [] if root else cache.names()
    if name in kept:
        return Dataset.load(cache.prepared(name))
    if name in registry.NAMES and not root:
        raise CoveyError(
            f"dataset '{name}' is not here yet; get it with covey data get {name}, or set COVEY_DATA"
        )
    _no_file(name)
    names = folder.available(where) if where else ["synthetic", *kept]
    cached = f"; in the cache: {', '.join(kept)}" if where and kept else ""
    raise CoveyError(f"{folder.unknown(name, names, where)}{cached}; covey data list shows all")


def _no_file(name: str) -> None:
    """Refuses a table where the name of a dataset is needed, whether it is there or not."""
    if Path(name).is_file():
        raise CoveyError(
            f"{name} is a file, not the name of a dataset; import it: covey data import {name}"
        )
    if name.removesuffix(".gz").endswith(TABLES):
        raise CoveyError(f"no file {name}; is the path right?")
