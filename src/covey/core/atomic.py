"""Atomic writes of files, and locks that exclude other processes."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import CoveyError


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """Writes a whole file or nothing: `fill` writes a temporary one, forced to disk and renamed."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        for left in path.parent.glob(f".{path.name}.*.part"):  # of processes that were killed
            writer = left.name.split(".")[-2]
            if writer.isdecimal() and not _alive(int(writer)):
                left.unlink(missing_ok=True)
        fill(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        wrong = f"cannot write {path}: {error.strerror or error}"
        raise CoveyError(f"{wrong}; free space or choose another --out") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def exclusive(path: Path, wait: bool = True) -> Iterator[None]:
    """Holds a lock on `path` within the block; it ends with the process, however that ends.

    Without `wait`, a lock that another process holds raises BlockingIOError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError as error:
            wrong = f"cannot lock {path}: {error.strerror}"
            raise CoveyError(f"{wrong}; choose a folder on another disk") from error
        yield


def _alive(process: int) -> bool:
    try:
        with suppress(PermissionError):  # the process of another user
            os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def append(path: Path, at: int, text: str) -> int:
    """Replaces what follows the first `at` bytes by `text` and forces it to disk.

    A failure leaves the first `at` bytes. Returns the new length of the file.
    """
    try:
        with path.open("r+b") as file:
            file.truncate(at)
            file.seek(at)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        with suppress(OSError):
            os.truncate(path, at)
        wrong = f"cannot write {path}: {error.strerror or error}"
        raise CoveyError(f"{wrong}; free space, then covey resume") from error


def write_text(path: Path, text: str) -> None:
    """Writes a whole text file or nothing."""
    write(path, lambda part: part.write_text(text, encoding="utf-8"))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
