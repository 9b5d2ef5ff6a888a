"""Files that are either whole or not there."""

import os
from collections.abc import Callable
from pathlib import Path

from .core import CoveyError


def write(path: Path, fill: Callable[[Path], None]) -> None:
    """Fills a file beside `path`, forces it to disk and renames it; a failure leaves nothing behind."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        fill(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise CoveyError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another --out"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    def fill(part: Path) -> None:
        part.write_text(text)

    write(path, fill)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
