"""Prepares public datasets in the cache: from a copy, a local folder, or their original address."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from covey.core.errors import CoveyError
from covey.data import cache
from covey.data.dataset import Dataset
from covey.data.tables.importing import from_file

from .download import Progress, fetch
from .formats import parse
from .registry import Source

RECBOLE = "recbole==1.2.1"  # its wheel contains MovieLens 100K, with the rows of the original
INSIDE = "recbole/dataset_example/ml-100k"


def get(
    source: Source, copy: str | Path | None = None, progress: Progress | None = None
) -> Dataset:
    """Prepares a dataset and saves it in the cache; nothing is saved if anything fails.

    Args:
        source: The dataset.
        copy: A folder, an archive or a file with the original; by default it is looked for under
            $COVEY_DATA and then downloaded.
        progress: Is called while bytes arrive.
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
