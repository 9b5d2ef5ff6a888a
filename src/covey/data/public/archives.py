"""Finds a file of a dataset in a folder, in a zip or tar archive, or as the file itself."""

import csv
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from covey.core.errors import CoveyError

ARCHIVES = (".zip", ".whl", ".tar", ".tgz", ".tar.gz")
DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)
MISREAD = (KeyError, IndexError, TypeError, ValueError, OverflowError, SyntaxError, csv.Error)


class _Lines(io.TextIOWrapper):
    """A text file that counts the lines that were read."""

    count = 0

    def __next__(self) -> str:  # type: ignore[override]
        self.count += 1
        return super().__next__()


@contextmanager
def member(
    copy: str | Path, names: tuple[str, ...], encoding: str, alone: bool = False
) -> Iterator[tuple[str, IO[str] | None]]:
    """Opens the first of `names` in a folder or archive, as text; errors name file and line.

    If `alone`, `copy` may also be the file itself, under any name. Returns the name without ".gz"
    and the text; "" and None if there is no such file.
    """
    copy, name, line = Path(copy), "", 0
    try:
        with ExitStack() as stack:
            name, stream = _find(copy, names, alone, stack)
            if stream is None:
                yield "", None
                return
            text = stack.enter_context(_Lines(unzipped(name, stream), encoding=encoding))
            try:
                yield name.removesuffix(".gz"), text
            finally:
                line = text.count
    except MISREAD as error:
        why = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise CoveyError(f"{copy}: {name} line {line}: {why}; is this the original file?") from None
    except FileNotFoundError:
        raise CoveyError(f"no file or folder {copy}; is the path right?") from None
    except DAMAGED as error:
        raise CoveyError(f"cannot read {copy}: {error}; is it whole? get it again") from None


def _find(
    copy: Path, names: tuple[str, ...], alone: bool, stack: ExitStack
) -> tuple[str, IO[bytes] | None]:
    if alone and not copy.is_dir() and not copy.name.endswith(ARCHIVES):
        return copy.name, stack.enter_context(copy.open("rb"))
    there = files(copy, stack)
    ends = (f"/{name}" for name in names)
    name = next((full for end in ends for full in there if f"/{full}".endswith(end)), "")
    return name, stack.enter_context(there[name]()) if name else None


def files(copy: Path, stack: ExitStack) -> dict[str, Callable[[], Any]]:
    """What opens each file in a folder or an archive, by its path; nothing for another file."""
    if copy.is_dir():
        paths = [path for path in sorted(copy.rglob("*")) if path.is_file()]
        return {path.relative_to(copy).as_posix(): partial(path.open, "rb") for path in paths}
    if copy.name.endswith((".zip", ".whl")):
        zipped = stack.enter_context(zipfile.ZipFile(copy))
        return {m.filename: partial(zipped.open, m) for m in zipped.infolist() if not m.is_dir()}
    if copy.name.endswith(ARCHIVES):
        tarred = stack.enter_context(tarfile.TarFile.open(copy))
        return {m.name: partial(tarred.extractfile, m) for m in tarred if m.isfile()}
    stack.enter_context(copy.open("rb"))  # an error if it is not there
    return {}


def unzipped(name: str, stream: IO[bytes]) -> IO[bytes]:
    """The text of a file that may end in .gz."""
    return gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream  # type: ignore[return-value]
