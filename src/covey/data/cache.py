"""Where downloads and prepared datasets are kept: $COVEY_CACHE, else the platform's cache folder."""

import os
import re
import sys
from pathlib import Path

from covey.core.errors import CoveyError

from .dataset import Dataset

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def root() -> Path:
    """The cache folder; it need not be there yet."""
    if given := os.environ.get("COVEY_CACHE"):
        return Path(given).expanduser()
    return _base() / "covey"


def _base() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (
        given if given.is_absolute() else Path.home() / ".cache"
    )  # the XDG rule: relative ones do not count


def downloads() -> Path:
    return root() / "downloads"


def prepared(name: str) -> Path:
    """The file of a prepared dataset, there or not."""
    return root() / "datasets" / f"{name}.npz"


def names() -> list[str]:
    """The datasets that are prepared."""
    return sorted(
        path.stem for path in (root() / "datasets").glob("*.npz") if not path.name.startswith(".")
    )


def save(dataset: Dataset) -> Path:
    """Keeps a dataset under its name."""
    if not NAME.fullmatch(dataset.name) or dataset.name.endswith(".npz"):
        raise CoveyError(
            f"'{dataset.name}' cannot name a dataset: use letters, digits, '.', '_' and '-'"
        )
    path = prepared(dataset.name)
    try:
        dataset.save(path)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(path: Path, error: OSError) -> CoveyError:
    return CoveyError(
        f"cannot write {path}: {error.strerror or error}; free space or set COVEY_CACHE to a folder you may write"
    )
