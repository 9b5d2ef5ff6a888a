"""The lock of a run folder, which excludes a second process.

The operating system releases the lock when its process ends, however that ends, so a run that was
killed can be resumed at once. The lock file names its holder and is removed with the lock.
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
    """Creates the folder and locks it within the block; folders that stay empty are removed."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        file = _locked(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                (folder / NAME).unlink()  # before the lock is released
            file.close()
    finally:
        with suppress(OSError):
            for path in new:
                path.rmdir()


def _locked(folder: Path) -> IO[str]:
    """Opens and locks the lock file; tries again if its last holder removed it in between."""
    while True:
        file = _opened(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with file:
                file.seek(0)
                process, _, host = file.read().partition(" ")
            who = f"process {process} on {host}" if host else "another process"
            wrong = f"{folder} is in use by {who}"
            raise CoveyError(f"{wrong}; wait until it ends, or choose another folder") from error
        except OSError as error:
            text = "%s cannot be locked (%s): start no second run on it meanwhile"
            _log.warning(text, folder, error.strerror)
        if _is_at(file, folder / NAME):
            with suppress(OSError):  # on a full disk the lock holds without a name
                file.truncate(0)
                file.write(f"{os.getpid()} {socket.gethostname()}")
                file.flush()
            return file
        file.close()


def _opened(folder: Path) -> IO[str]:
    path = folder / NAME
    for last in (False, False, True):  # a run that fails may remove the folder that it made
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = f"cannot make the folder {folder}: {error.strerror}"
            raise CoveyError(f"{wrong}; choose another --out") from error
        try:
            return path.open("a+", encoding="utf-8")
        except OSError as error:
            if last or not isinstance(error, FileNotFoundError):
                why = f"{error.strerror}; free space or choose another --out"
                raise CoveyError(f"cannot write {path}: {why}") from error
    raise AssertionError


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
