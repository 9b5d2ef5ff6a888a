"""Downloads files: resumes interrupted downloads, and keeps complete and verified files only."""

import gzip
import hashlib
import http.client
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from covey.core.errors import CoveyError
from covey.data.cache import unwritable

CHUNK = 1 << 20
WAIT = 30.0
INTERRUPTED = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if known


def fetch(
    url: str, target: Path, checksum: str = "", progress: Progress | None = None, wait: float = WAIT
) -> Path:
    """Downloads a file unless it is there; an interrupted download is resumed by the next call.

    Args:
        url: The address.
        target: Where the file goes; until it is complete, it is at `target`.part.
        checksum: "algorithm:digest"; without one, only archives are checked.
        progress: Is called while bytes arrive.
        wait: After so many seconds without a byte, the download fails.

    Returns:
        `target`.
    """
    if target.exists() and _wrong(target, checksum) is None:
        return target
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(url, part, progress, wait)
        if why := _wrong(part, checksum, target.suffix):
            _forget(part)
            remedy = "removed, nothing was kept. Run again, or get the file by hand"
            raise CoveyError(f"{url}: {why}; {remedy}")
        part.replace(target)
        _forget(part)
    except INTERRUPTED as error:
        raise CoveyError(_failure(url, error)) from None
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _receive(url: str, part: Path, progress: Progress | None, wait: float) -> None:
    """Appends the missing bytes to the part; starts again if the server has another version."""
    tag = part.with_name(f"{part.name}.tag")
    begin = part.stat().st_size if part.exists() and tag.exists() else 0
    headers = {"User-Agent": "covey", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers=headers)
    if begin:
        request.add_header("Range", f"bytes={begin}-")
        request.add_header("If-Range", tag.read_text(encoding="utf-8"))
    try:
        answer = urllib.request.urlopen(request, timeout=wait)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: the part is at least as long as the file
            raise
        _forget(part)
        return _receive(url, part, progress, wait)
    with answer:
        begin = begin if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = begin + int(length) if length else None
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        _forget(tag)
        if version and not version.startswith("W/"):  # a weak tag does not promise the same bytes
            tag.write_text(version, encoding="utf-8")
        done = begin
        with part.open("ab" if begin else "wb") as file:
            while piece := answer.read1(CHUNK):
                file.write(piece)
                done += len(piece)
                if progress:
                    progress(done, total)
        if total is not None and done < total:
            raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")


def _wrong(path: Path, checksum: str, suffix: str | None = None) -> str | None:
    """Why a file is not the one that was requested; None if it is."""
    if checksum:
        kind, _, digest = checksum.partition(":")
        with path.open("rb") as file:
            made = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
        found = made.hexdigest()
        return None if found == digest else f"wrong checksum: {kind} {found}, expected {digest}"
    try:
        if (suffix or path.suffix) == ".zip":
            with zipfile.ZipFile(path) as archive:
                broken = archive.testzip()
                return f"damaged archive: {broken}" if broken else None
        if (suffix or path.suffix) == ".gz":
            with gzip.open(path) as stream:
                while stream.read(CHUNK):
                    pass
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError) as error:
        return f"damaged archive: {error}"
    return None


def _failure(url: str, error: Exception) -> str:
    host = urlsplit(url).hostname
    if isinstance(error, urllib.error.HTTPError):
        why = f"{host} answered {error.code} {error.reason} for {url}"
        return f"{why}; get the file by hand, then use --from FILE"
    if isinstance(error, urllib.error.URLError):
        remedy = f"no network? get {url} elsewhere, then use --from FILE"
        return f"cannot reach {host} ({error.reason}); {remedy}"
    remedy = "run the command again and it goes on where it stopped"
    return f"{host}: {error or type(error).__name__}; {remedy}"


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.tag").unlink(missing_ok=True)
