"""Where datasets are: in $COVEY_DATA, or in the cache, which also has downloads.

The cache is $COVEY_CACHE, else the platform's cache folder. Loads neither NumPy nor PyTorch.
"""

import difflib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from covey.core.errors import CoveyError

from .public import registry
from .tables.reader import TABLES

if TYPE_CHECKING:
    from .dataset import Dataset

BUILT_IN = "synthetic"
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def root() -> Path:
    """The cache folder, which may not exist yet."""
    if given := os.environ.get("COVEY_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "covey"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/covey"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the XDG rule ignores relative paths
    return (base if base.is_absolute() else Path.home() / ".cache") / "covey"


def downloads() -> Path:
    return root() / "downloads"


def prepared(name: str) -> Path:
    """The file of a prepared dataset, which may not exist."""
    return root() / "datasets" / f"{name}.npz"


def names() -> list[str]:
    files = (root() / "datasets").glob("*.npz")
    return sorted(path.stem for path in files if not path.name.startswith("."))


def save(dataset: "Dataset") -> Path:
    """Saves a dataset in the cache under its name and returns the file."""
    if not NAME.fullmatch(dataset.name) or dataset.name.endswith(".npz"):
        valid = "use letters, digits, '.', '_' and '-'"
        raise CoveyError(f"'{dataset.name}' cannot name a dataset: {valid}")
    path = prepared(dataset.name)
    try:
        dataset.save(path)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(path: Path, error: OSError) -> CoveyError:
    """The error for a file of the cache that cannot be written."""
    remedy = "free space or set COVEY_CACHE to a folder you may write"
    return CoveyError(f"cannot write {path}: {error.strerror or error}; {remedy}")


def available(root: str | Path) -> list[str]:
    found = (path for end in ("", ".gz") for path in Path(root).glob(f"*/interactions.csv{end}"))
    return sorted({path.parent.name for path in found if path.is_file()})


def unknown(name: str, names: list[str], root: str | Path | None) -> str:
    """The message for an unknown name: the nearest name, the available ones, and the remedy."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    where = f" in {root}" if root else ""
    there = f"available{where}: {', '.join(names) or 'none'}"
    return f"no dataset '{name}'{hint} {there}; set COVEY_DATA=/path/to/data to look elsewhere"


def find(name: str, root: str | Path | None = None) -> Path | None:
    """The folder or file of a dataset, by default under $COVEY_DATA; None for the built-in one."""
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
    kept = [] if root else names()
    if name in kept:
        return prepared(name)
    if name in registry.NAMES and not root:
        remedy = f"get it with covey data get {name}, or set COVEY_DATA"
        raise CoveyError(f"dataset '{name}' is not here yet; {remedy}")
    if Path(name).is_file():
        remedy = f"import it: covey data import {name}"
        raise CoveyError(f"{name} is a file, not the name of a dataset; {remedy}")
    if name.removesuffix(".gz").endswith((*TABLES, ".zip")):
        raise CoveyError(f"no file {name}; is the path right?")
    there = available(where) if where else [BUILT_IN, *kept]
    cached = f"; in the cache: {', '.join(kept)}" if where and kept else ""
    raise CoveyError(f"{unknown(name, there, where)}{cached}; covey data list shows all")
