"""The cache of downloads and prepared datasets: $COVEY_CACHE, else the platform's cache folder."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from covey.core.errors import CoveyError

if TYPE_CHECKING:
    from .dataset import Dataset

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def root() -> Path:
    """The cache folder, which may not exist yet."""
    if given := os.environ.get("COVEY_CACHE"):
        return Path(given).expanduser()
    return _base() / "covey"


def _base() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the XDG rule ignores relative paths
    return given if given.is_absolute() else Path.home() / ".cache"


def downloads() -> Path:
    return root() / "downloads"


def prepared(name: str) -> Path:
    """The file of a prepared dataset, which may not exist."""
    return root() / "datasets" / f"{name}.npz"


def names() -> list[str]:
    """The names of the prepared datasets."""
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
