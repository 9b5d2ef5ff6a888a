"""Datasets and their splits; the function that splits is covey.data.split.split."""

import os
from pathlib import Path

from ..core import CoveyError
from . import folder
from .dataset import Dataset, check
from .folder import DEFAULT_FILTERS, Filter, apply_filter
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
    """A dataset by name: 'synthetic', a prepared .npz file, or a folder under root or $COVEY_DATA.

    Without a filter, a folder gets the one the papers use for it (DEFAULT_FILTERS); Filter() keeps every row.
    """
    if name == "synthetic":
        return apply_filter(generate(options or Synthetic()), filter or Filter())
    if str(name).endswith(".npz"):
        return apply_filter(Dataset.load(name), filter or Filter())
    dataset = folder.read(str(name), _root(str(name), root))
    return apply_filter(dataset, DEFAULT_FILTERS.get(dataset.name, Filter()) if filter is None else filter)


def _root(name: str, root: str | Path | None) -> Path:
    where = root or os.environ.get("COVEY_DATA")
    if not where:
        raise CoveyError(folder.unknown(name, ["synthetic"], None))
    if not Path(where).is_dir():
        raise CoveyError(f"no folder {where} to read dataset '{name}' from; set COVEY_DATA=/path/to/data")
    return Path(where)
