"""`covey data`: which datasets are available, and how to get others."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.core import CoveyError

from . import arguments, data_import
from .data_import import BUILT_IN, done, show

if TYPE_CHECKING:
    from covey.data.dataset import Dataset
    from covey.data.public.registry import Source


def add(commands: Any) -> None:
    example = "example: covey data list"
    data = commands.add_parser("data", help="list, get, import or show datasets", epilog=example)
    parts = data.add_subparsers(required=True, metavar="list|get|import|show")
    text = "known datasets and those that are here"
    arguments.finish(parts.add_parser("list", help=text, epilog=example), _list, "them")
    _add_get(parts)
    data_import.add(parts)
    example = "example: covey data show synthetic"
    command = parts.add_parser("show", help="counts and traps of one", epilog=example)
    command.add_argument("name", help="a name of covey data list, or a prepared .npz")
    text = "items by id or part of a title, with the rows that runs know"
    command.add_argument("--find", metavar="TEXT", help=text)
    data_import.add_filter(command)
    arguments.finish(command, show, "it")


def _add_get(parts: Any) -> None:
    about = "Shows the licence, fetches (and resumes), checks, and prepares a dataset into the"
    about += " cache ($COVEY_CACHE, else the platform's cache folder)."
    text = "fetch a public dataset from its original place, or take your copy"
    example = "example: covey data get ml-100k --from ml-100k.zip"
    get = arguments.add_command(parts, "get", text, example, about)
    option = get.add_argument
    option("name", help="a name of covey data list")
    copy = "your copy: a folder, archive or file"
    option("--from", dest="copy", type=Path, metavar="PATH", help=copy)
    wheel = "ml-100k from the recbole wheel of the package index"
    option("--recbole", action="store_true", help=wheel)
    option("--again", action="store_true", help="prepare it even if it is here")
    arguments.finish(get, _get, "it")


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
