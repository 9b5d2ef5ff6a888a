"""Files that are either whole or not there."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import CoveyError


def write(path: Path, fill: Callable[[Path], None]) -> None:
    """Fills a file beside `path`, forces it to disk and renames it; a failure leaves nothing behind."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _remove_left_over(path)
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


@contextmanager
def alone(path: Path, wait: bool = True) -> Iterator[None]:
    """For one process at a time, which waits for the others or raises BlockingIOError; one that dies is outside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise
        except OSError as error:
            raise CoveyError(
                f"cannot lock {path}: {error.strerror}; choose a folder on another disk"
            ) from error
        yield


def _remove_left_over(path: Path) -> None:
    """What processes that were killed in the midst of writing have left; checkpoints are large."""
    for part in path.parent.glob(f".{path.name}.*.part"):
        writer = part.name.split(".")[-2]
        if writer.isdecimal() and not _alive(int(writer)):
            part.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def append(path: Path, at: int, text: str) -> int:
    """Puts text behind the first `at` bytes and forces it to disk; a failure leaves these. Returns the new length."""
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
        raise CoveyError(
            f"cannot write {path}: {error.strerror or error}; free space, then covey resume"
        ) from error


def write_text(path: Path, text: str) -> None:
    def fill(part: Path) -> None:
        part.write_text(text, encoding="utf-8")

    write(path, fill)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
