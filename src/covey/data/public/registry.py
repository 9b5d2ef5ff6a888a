"""The registry of public datasets: one record each, with origin, terms and files.

The records are in `registry.toml`, by the names that commands and configurations use.
"""

import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

from covey.core.errors import CoveyError
from covey.data.settings import Filter

ALL = Filter()


@dataclass(frozen=True)
class Source:
    """One public dataset: where it comes from, and which part of it the papers use."""

    name: str
    title: str  # for people
    form: str  # which parser of `formats.FORMS` reads it
    licence: str  # in the file, its key among the licences
    page: str  # the address for people
    rows: tuple[str, ...]  # file names of the interactions; the first that exists is read
    items: tuple[str, ...] = ()  # file names of the titles
    test: tuple[str, ...] = ()  # file names of a test part of its own
    url: str = ""  # for programs: the file's, the folder's with `test`; empty: people get it
    checksum: str = ""  # "algorithm:digest" of the file at `url`
    keep: Filter = ALL  # makes the papers' file of the original
    years: tuple[int, int] | None = None  # the first year, and the first that is left out again
    counts: tuple[int, int, int] | None = None  # expected users, items and rows


def _read() -> Iterator[Source]:
    tree = tomllib.loads(resources.files(__package__).joinpath("registry.toml").read_text("utf-8"))
    licences = tree.pop("licences")
    for name, record in tree.items():
        own: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        own |= {"licence": licences[record["licence"]], "keep": Filter(**record.get("keep", {}))}
        yield Source(name, **own)


SOURCES = tuple(_read())
NAMES = tuple(source.name for source in SOURCES)


def find(name: str) -> Source:
    """The record of a name; an unknown name is an error that suggests the nearest one."""
    for source in SOURCES:
        if source.name == name:
            return source
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'? " if near else ""
    names = f"known: {', '.join(NAMES)}; your own file: covey data import FILE"
    raise CoveyError(f"no known dataset '{name}'; {hint}{names}")
