"""Files from the network: resumed where they stopped, checked, and either whole or not there."""

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
WAIT = 30.0  # seconds without a byte
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all where known


def fetch(
    url: str, target: Path, checksum: str = "", progress: Progress | None = None, wait: float = WAIT
) -> Path:
    """The file of the url at target; what is there and right is not fetched again.

    A download that breaks off leaves target.part, and the next call goes on from there.
    """
    if target.exists() and _wrong(target, checksum) is None:
        return target
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _receive(url, part, progress, wait)
        if why := _wrong(part, checksum, target.suffix):
            _forget(part)
            raise CoveyError(
                f"{url}: {why}; removed, nothing was kept. Run again, or get the file by hand"
            )
        part.replace(target)
        _forget(part)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        raise CoveyError(_lost(url, error)) from None
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def _receive(url: str, part: Path, progress: Progress | None, wait: float) -> None:
    """Appends to the part what is missing; begins anew where the server has another version of the file."""
    tag = part.with_name(f"{part.name}.tag")
    begin = part.stat().st_size if part.exists() and tag.exists() else 0
    request = urllib.request.Request(
        url, headers={"User-Agent": "covey", "Accept-Encoding": "identity"}
    )
    if begin:
        request.add_header("Range", f"bytes={begin}-")
        request.add_header("If-Range", tag.read_text(encoding="utf-8"))
    try:
        answer = urllib.request.urlopen(request, timeout=wait)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is as long as the file or longer
            raise
        _forget(part)
        return _receive(url, part, progress, wait)
    with answer:
        begin = begin if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = begin + int(length) if length else None
        version = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        _forget(tag)
        if version and not version.startswith("W/"):  # a weak one cannot promise the same bytes
            tag.write_text(version, encoding="utf-8")
        _copy(answer, part, begin, total, progress)


def _copy(
    answer: http.client.HTTPResponse,
    part: Path,
    begin: int,
    total: int | None,
    progress: Progress | None,
) -> None:
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
    """Why a file is not what was asked for; None: it is."""
    if checksum:
        kind, _, digest = checksum.partition(":")
        with path.open("rb") as file:
            found = hashlib.file_digest(
                file, lambda: hashlib.new(kind, usedforsecurity=False)
            ).hexdigest()
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


def _lost(url: str, error: Exception) -> str:
    host = urlsplit(url).hostname
    if isinstance(error, urllib.error.HTTPError):
        return f"{host} answered {error.code} {error.reason} for {url}; get the file by hand, then use --from FILE"
    if isinstance(error, urllib.error.URLError):
        return f"cannot reach {host} ({error.reason}); no network? get {url} elsewhere, then use --from FILE"
    return f"{host}: {error or type(error).__name__}; run the command again and it goes on where it stopped"


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}.tag").unlink(missing_ok=True)
