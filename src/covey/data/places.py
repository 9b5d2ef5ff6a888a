"""Where the dataset of a name is; loads neither NumPy nor PyTorch."""

import difflib
import os
from pathlib import Path

from covey.core.errors import CoveyError

from . import cache
from .public import registry
from .tables.reader import TABLES

BUILT_IN = "synthetic"


def available(root: str | Path) -> list[str]:
    """Names of the datasets under root."""
    files = [path for path in Path(root).glob("*/interactions.csv*") if path.is_file()]
    return sorted({path.parent.name for path in files if path.name.endswith((".csv", ".csv.gz"))})


def unknown(name: str, names: list[str], root: str | Path | None) -> str:
    """The message for an unknown name: the nearest name, the available ones, and the remedy."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    where = f" in {root}" if root else ""
    there = f"available{where}: {', '.join(names) or 'none'}"
    return f"no dataset '{name}'{hint} {there}; set COVEY_DATA=/path/to/data to look elsewhere"


def find(name: str, root: str | Path | None = None) -> Path | None:
    """Returns the folder or the prepared file of a dataset; None for the built-in one.

    Args:
        name: The name of a dataset, or a prepared .npz file.
        root: The folder of datasets; $COVEY_DATA by default.
    """
    if name == BUILT_IN:
        return None
    if name.endswith(".npz"):
        if not Path(name).is_file():
            raise CoveyError(f"no file {name}; is the path right?")
        return Path(name)
    where = root or os.environ.get("COVEY_DATA")
    if where and not Path(where).is_dir():
        why = f"no folder {where} to read dataset '{name}' from"
        raise CoveyError(f"{why}; set COVEY_DATA=/path/to/data")
    if where and name in available(where):
        return Path(where) / name
    kept = [] if root else cache.names()
    if name in kept:
        return cache.prepared(name)
    if name in registry.NAMES and not root:
        remedy = f"get it with covey data get {name}, or set COVEY_DATA"
        raise CoveyError(f"dataset '{name}' is not here yet; {remedy}")
    if Path(name).is_file():
        remedy = f"import it: covey data import {name}"
        raise CoveyError(f"{name} is a file, not the name of a dataset; {remedy}")
    if name.removesuffix(".gz").endswith((*TABLES, ".zip")):
        raise CoveyError(f"no file {name}; is the path right?")
    names = available(where) if where else [BUILT_IN, *kept]
    cached = f"; in the cache: {', '.join(kept)}" if where and kept else ""
    raise CoveyError(f"{unknown(name, names, where)}{cached}; covey data list shows all")
