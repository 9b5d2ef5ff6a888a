"""`covey data`: which datasets are available, and how to get others."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from covey.core import CoveyError

from . import arguments, data_import
from .data_import import BUILT_IN, done, show

if TYPE_CHECKING:
    from covey.data.dataset import Dataset
    from covey.data.public.registry import Source


def add(commands: Any) -> None:
    """Adds `covey data` with its parts."""
    about = arguments.described()["data"]
    example = f"example: {about['examples'][0]}"
    data = commands.add_parser("data", help=about["help"], epilog=example)
    parts = data.add_subparsers(required=True, metavar="list|get|import|show")
    for name, act in (("list", _list), ("get", _get), ("import", data_import.act), ("show", show)):
        arguments.add(parts, name, act, about["parts"][name])


def known() -> list[dict[str, str]]:
    """Names all datasets that are here or can be got, with where they are."""
    from covey.data import cache
    from covey.data.public.registry import SOURCES

    where = os.environ.get("COVEY_DATA")
    title = {BUILT_IN: "groups of taste, of any size"} | {s.name: s.title for s in SOURCES}
    here = dict.fromkeys(title, "no") | {BUILT_IN: "built in"}
    here |= dict.fromkeys(cache.names(), "cache")
    here |= dict.fromkeys(cache.available(where) if where else (), "COVEY_DATA")
    return [{"name": n, "here": h, "title": title.get(n, "")} for n, h in here.items()]


def _list(options: argparse.Namespace) -> int:
    rows = known()
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'name':<26}{'here':<12}what")
    for row in rows:
        print(f"{row['name']:<26}{row['here']:<12}{row['title']}".rstrip())
    print("get one: covey data get NAME; your own: covey data import FILE")
    return 0


def _get(options: argparse.Namespace) -> int:
    from covey.data import cache
    from covey.data.public.registry import find

    source = find(options.name)
    if options.recbole and source.name != "ml-100k":
        raise CoveyError("the recbole wheel has ml-100k only; leave --recbole out")
    where = os.environ.get("COVEY_DATA")
    if where and source.name in cache.available(where):
        if options.copy:
            wrong = f"COVEY_DATA has a copy of '{source.name}', which is used first"
            raise CoveyError(f"{wrong}; unset it to take another")
        return done(options, source.name, f"already in {where}; nothing to get")
    path = cache.prepared(source.name)
    if path.exists() and not (options.copy or options.again or options.recbole):
        return done(options, source.name, f"already in {path}; --again prepares it again")
    from covey.data.public import getting

    print(f"{source.title}\n  from    {source.page}\n  licence {source.licence}", file=sys.stderr)
    own = options.copy, _progress()
    dataset = getting.get_recbole() if options.recbole else getting.get(source, *own)
    use = "; its own split: --set split.kind=given" if source.test else ""
    notes = _differs(source, dataset)
    return done(options, source.name, f"prepared in {path}{use}", dataset, notes)


def _progress() -> Any:
    """Returns what shows the progress of a download, if a person watches."""
    if not sys.stderr.isatty():
        return None

    def show_progress(done: int, total: int | None) -> None:
        of = f" of {total / 1e6:.1f}" if total else ""
        end = "\n" if done == total else ""
        print(f"\r  {done / 1e6:.1f}{of} MB ", end=end, file=sys.stderr, flush=True)

    return show_progress


def _differs(source: "Source", dataset: "Dataset") -> tuple[str, ...]:
    """A note if the counts are not those of the file that the papers used."""
    found = (dataset.n_users, dataset.n_items, len(dataset))
    if not source.counts or found == source.counts:
        return ()
    theirs = "the papers' file has {:,} users, {:,} items, {:,} rows".format(*source.counts)
    return (f"{theirs}: this is another version",)
