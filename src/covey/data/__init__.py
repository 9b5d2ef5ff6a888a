"""Datasets: loading, filtering and splitting; the function that splits is `data.split.split`."""

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
    """Loads a dataset.

    Args:
        name: "synthetic", a prepared .npz file, or the name of a folder under `root` or of a
            dataset in the cache.
        root: The folder of datasets; $COVEY_DATA by default.
        filter: The rows to drop. By default it is the one that the papers use for this dataset
            (`DEFAULT_FILTERS`); `Filter()` keeps every row.
        options: Options of the synthetic dataset.
    """
    if name == "synthetic":
        return apply_filter(generate(options or Synthetic()), filter or Filter())
    if str(name).endswith(".npz"):
        return apply_filter(Dataset.load(name), filter or Filter())
    dataset = _find(str(name), root)
    return apply_filter(dataset, filter or DEFAULT_FILTERS.get(dataset.name, Filter()))


def _find(name: str, root: str | Path | None) -> Dataset:
    where = root or os.environ.get("COVEY_DATA")
    if where and not Path(where).is_dir():
        why = f"no folder {where} to read dataset '{name}' from"
        raise CoveyError(f"{why}; set COVEY_DATA=/path/to/data")
    if where and name in folder.available(where):
        return folder.read(name, where)
    kept = [] if root else cache.names()
    if name in kept:
        return Dataset.load(cache.prepared(name))
    if name in registry.NAMES and not root:
        remedy = f"get it with covey data get {name}, or set COVEY_DATA"
        raise CoveyError(f"dataset '{name}' is not here yet; {remedy}")
    if Path(name).is_file():
        remedy = f"import it: covey data import {name}"
        raise CoveyError(f"{name} is a file, not the name of a dataset; {remedy}")
    if name.removesuffix(".gz").endswith((*TABLES, ".zip")):
        raise CoveyError(f"no file {name}; is the path right?")
    names = folder.available(where) if where else ["synthetic", *kept]
    cached = f"; in the cache: {', '.join(kept)}" if where and kept else ""
    raise CoveyError(f"{folder.unknown(name, names, where)}{cached}; covey data list shows all")
