"""Prepares public datasets in the cache: from a copy, a local folder, or their original address.

Downloads that were interrupted are resumed; complete and verified files only are kept.
"""

import gzip
import hashlib
import http.client
import importlib.util
import os
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from covey.core.errors import CoveyError
from covey.data import Dataset, cache
from covey.data.tables.importing import from_file

from .formats import parse
from .registry import Source

RECBOLE = "recbole==1.2.1"  # its wheel contains MovieLens 100K, with the rows of the original
INSIDE = "recbole/dataset_example/ml-100k"
CHUNK = 1 << 20
WAIT = 30.0
INTERRUPTED = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if known


def get(
    source: Source, copy: str | Path | None = None, progress: Progress | None = None
) -> Dataset:
    """Prepares a dataset and saves it in the cache; nothing is saved if anything fails.

    `copy` is a folder, an archive or a file with the original; by default it is looked for under
    $COVEY_DATA and then downloaded, while `progress` is called.
    """
    own = Path(copy) if copy else local(source)
    dataset = parse(source, own) if own else _from_origin(source, progress)
    cache.save(dataset)
    return dataset


def local(source: Source) -> Path | None:
    """The folder with the files of the original under $COVEY_DATA, if it exists."""
    folder = Path(os.environ.get("COVEY_DATA", ""), source.name)
    there = os.environ.get("COVEY_DATA") and any((folder / name).is_file() for name in source.rows)
    return folder if there else None


def _from_origin(source: Source, progress: Progress | None) -> Dataset:
    if not source.url:
        remedy = f"get it from {source.page}, then covey data get {source.name} --from FILE"
        raise CoveyError(f"{source.title} is given out by hand only: {remedy}")
    if source.test:
        folder = cache.downloads() / source.name
        for file in (source.rows[-1], source.test[-1]):
            fetch(f"{source.url}/{file}", folder / file, "", progress)
        return parse(source, folder)
    target = cache.downloads() / source.url.rsplit("/", 1)[1]
    try:
        return parse(source, fetch(source.url, target, source.checksum, progress))
    except CoveyError as error:
        if source.name != "ml-100k":
            raise
        if (wheel := _find_recbole()) is None:
            remedy = "use the package index: covey data get ml-100k --recbole"
            raise CoveyError(f"{error}; or {remedy}") from None
        return _read_recbole(wheel)


def get_recbole() -> Dataset:
    """Prepares MovieLens 100K from RecBole: installed, as a wheel in the cache, or from pip."""
    dataset = _read_recbole(_find_recbole() or _pip())
    cache.save(dataset)
    return dataset


def _find_recbole() -> Path | None:
    """The data in an installed RecBole, found without importing it, or its wheel in the cache."""
    spec = importlib.util.find_spec("recbole")
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (folder := Path(place).parent / INSIDE).is_dir():
            return folder
    return next(iter(sorted(cache.downloads().glob("recbole-*.whl"), reverse=True)), None)


def _read_recbole(copy: Path) -> Dataset:
    if copy.is_dir():
        return from_file(copy / "ml-100k.inter", "ml-100k").dataset
    rows, items = (copy / INSIDE / f"ml-100k.{end}" for end in ("inter", "item"))
    try:
        return from_file(rows, "ml-100k", items=items).dataset
    except CoveyError as error:
        raise CoveyError(f"{error}; remove that file and try again") from None


def _pip() -> Path:
    """Downloads the wheel without its dependencies; pip checks its hash."""
    words = f"-P -m pip download --quiet --no-deps --only-binary=:all: {RECBOLE} -d".split()
    command = [sys.executable, *words, str(cache.downloads())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = _find_recbole()
    if done.returncode or wheel is None:
        why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        remedy = "no network? use covey data get ml-100k --from FILE"
        raise CoveyError(f"pip could not fetch {RECBOLE} ({why}); {remedy}")
    return wheel


def fetch(
    url: str, target: Path, checksum: str = "", progress: Progress | None = None, wait: float = WAIT
) -> Path:
    """Downloads a file to `target` and returns it, unless it is there.

    Until it is complete it is at `target`.part, and the next call resumes there. The checksum is
    "algorithm:digest"; without one, only archives are checked. `progress` is called while bytes
    arrive; after `wait` seconds without a byte, the download fails.
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
        raise cache.unwritable(target, error) from error
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
