"""A run folder is for one process at a time.

The lock is the operating system's. It ends with its process, however that ends, so a run that was
killed can be resumed at once. The lock file says who holds it and is removed with the lock.
"""

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .errors import CoveyError

NAME = ".lock"
_log = logging.getLogger(__name__)


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Makes the folder and keeps other processes out of it.

    Folders that were made here and stay empty are removed again.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        file = _locked(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / NAME).unlink()  # before the lock is given back
            file.close()
    finally:
        with suppress(OSError):
            for path in new:
                path.rmdir()


def _locked(folder: Path) -> IO[str]:
    """The lock file, open and locked; again where its last holder removed it in between."""
    while True:
        file = _opened(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with file:
                who = _holder(file)
            raise CoveyError(
                f"{folder} is in use by {who}; wait until it ends, or choose another folder"
            ) from error
        except OSError as error:
            _log.warning(
                "%s cannot be locked (%s): start no second run on it meanwhile",
                folder,
                error.strerror,
            )
        if _is_at(file, folder / NAME):
            _sign(file)
            return file
        file.close()


def _opened(folder: Path) -> IO[str]:
    for last in (False, False, True):  # a failing run may remove the folder that it made
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CoveyError(
                f"cannot make the folder {folder}: {error.strerror}; choose another --out"
            ) from error
        try:
            return (folder / NAME).open("a+", encoding="utf-8")
        except OSError as error:
            if last or not isinstance(error, FileNotFoundError):
                raise CoveyError(
                    f"cannot write {folder / NAME}: {error.strerror}; free space or choose another --out"
                ) from error
    raise AssertionError


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sign(file: IO[str]) -> None:
    with suppress(OSError):  # a full disk: the lock holds without
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()}")
        file.flush()


def _holder(file: IO[str]) -> str:
    file.seek(0)
    process, _, host = file.read().partition(" ")
    return f"process {process} on {host}" if host else "another process"
