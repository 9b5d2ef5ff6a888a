"""`covey data`: datasets that are available, how to get others or import your own, and counts."""

import argparse
import json
import os
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from covey.core import CoveyError

from . import arguments

if TYPE_CHECKING:
    from covey.data.checks import Summary
    from covey.data.dataset import Dataset


BUILT_IN = "synthetic"


def add(commands: Any) -> None:
    """Adds `covey data` with its parts."""
    about = arguments.described()["data"]
    example = f"example: {about['examples'][0]}"
    data = commands.add_parser("data", help=about["help"], epilog=example)
    parts = data.add_subparsers(required=True, metavar="list|get|import|show")
    for name, act in (("list", _list), ("get", _get), ("import", _import), ("show", show)):
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
    notes: tuple[str, ...] = ()
    found = (dataset.n_users, dataset.n_items, len(dataset))
    if source.counts and found != source.counts:
        theirs = "the papers' file has {:,} users, {:,} items, {:,} rows".format(*source.counts)
        notes = (f"{theirs}: this is another version",)
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


def _import(options: argparse.Namespace) -> int:
    from covey.data import Filter, apply_filter, cache
    from covey.data.tables.importing import from_file

    name = options.name or options.file.name.split(".")[0].replace(" ", "-")
    _check_name(name, options.replace)
    columns = _columns(options)
    parts = {part: getattr(options, part) for part in ("valid", "test") if getattr(options, part)}
    read = from_file(options.file, name, columns, options.items, parts)
    rows = Filter(options.min_user, options.min_item, core=options.core)
    dataset = apply_filter(read.dataset, rows)
    path = cache.save(dataset)
    use = f"--dataset {name}" + ("" if dataset.part_E is None else " --set split.kind=given")
    notes = (f"columns read: {read.columns()}", *read.notes)
    return done(options, name, f"imported into {path}; use it with {use}", dataset, notes)


def _check_name(name: str, replace: bool) -> None:
    from covey.data import cache
    from covey.data.public import registry

    where = os.environ.get("COVEY_DATA")
    if name in registry.NAMES:
        command = f"covey data get {name} --from FILE"
        raise CoveyError(f"'{name}' is a known dataset: {command}, or choose another --name")
    if name == BUILT_IN or (where and name in cache.available(where)):
        raise CoveyError(f"there is a dataset '{name}' that is used first; choose another --name")
    if cache.prepared(name).exists() and not replace:
        remedy = "choose another --name, or --replace it"
        raise CoveyError(f"dataset '{name}' is imported already; {remedy}")


def _columns(options: argparse.Namespace) -> Any:
    from covey.data.tables.columns import Columns

    delimiter = options.delimiter.replace("\\t", "\t") if options.delimiter else None
    names = tuple(name.strip() for name in options.columns.split(",")) if options.columns else ()
    where: dict[str, list[str]] = {}
    for text in options.where:
        column, equals, value = text.partition("=")
        if not equals:
            raise CoveyError(f"--where {text}: write COLUMN=VALUE, such as event=buy")
        where.setdefault(column, []).append(value)
    kinds = ("user", "item", "time", "title", "rating", "split", "encoding")
    same = (*kinds, "time_format", "min_rating", "drop_incomplete")
    given = {name: getattr(options, name) for name in same}
    return Columns(**given, delimiter=delimiter, names=names, where=where)


def show(options: argparse.Namespace) -> int:
    from covey.data.cache import find

    find(options.name)
    from covey.data import DEFAULT_FILTERS, Filter, apply_filter, load
    from covey.data.public.registry import SOURCES

    asked = Filter(options.min_user, options.min_item, core=options.core)
    dataset = load(options.name, filter=asked)  # whole, unless a filter was given
    source = next((s for s in SOURCES if s.name == dataset.name), None)
    papers = DEFAULT_FILTERS.get(dataset.name) if asked == Filter() else None
    cut = apply_filter(dataset, papers) if papers else None
    if options.find is not None:
        return _find(options, cut or dataset)
    what = source.title if source else "built in" if dataset.name == BUILT_IN else "your own"
    notes = (f"licence: {source.licence}",) if source else ()
    return done(options, dataset.name, what, dataset, notes, cut)


def _find(options: argparse.Namespace, dataset: "Dataset") -> int:
    """Prints items of the dataset as runs have it, since a filter changes the rows."""
    from covey.data.naming import find, ids_of, named

    ids, titles = ids_of(dataset), dataset.titles or [""] * dataset.n_items
    rows = find(dataset, options.find)
    if not rows:
        missing = f"no item of {dataset.name} has the id '{options.find}', or that in its title"
        raise CoveyError(f"{missing}; try a part")
    if options.json:
        print(json.dumps([{"row": row, "id": ids[row], "title": titles[row]} for row in rows]))
    else:
        print(*(named(row, ids[row], titles[row]) for row in rows), sep="\n")
    return 0


def done(
    options: argparse.Namespace,
    name: str,
    what: str,
    dataset: "Dataset | None" = None,
    notes: tuple[str, ...] = (),
    cut: "Dataset | None" = None,
) -> int:
    """Prints what was done, notes, and the counts of a dataset, whole and `cut` by a filter."""
    from covey.data.checks import summarise, warnings

    found = summarise(dataset) if dataset else None
    filtered = summarise(cut) if cut else None
    notes = (*notes, *(warnings(found) if found else ()))
    if options.json:
        tree: dict[str, Any] = {"name": name, "what": what, "notes": notes}
        for k, v in (("facts", found), ("papers", filtered)):
            if v:
                tree[k] = asdict(v) | {"duplicates": v.duplicates, "density": v.density}
        print(json.dumps(tree))
        return 0
    print(f"{name}: {what}")
    if found:
        _table(found, filtered)
    for note in notes:
        print(textwrap.fill(note, 80, initial_indent="note: ", subsequent_indent="      "))
    return 0


def _table(found: "Summary", filtered: "Summary | None") -> None:
    print(f"{'':<16}{'users':>10}{'items':>10}{'rows':>12}{'distinct':>12}{'density':>10}")
    for label, row in (("all rows", found), ("papers' filter", filtered)):
        if row:
            counts = f"{row.users:>10,}{row.items:>10,}{row.rows:>12,}{row.distinct:>12,}"
            print(f"{label:<16}{counts}{row.density:>10.3%}")
    print(f"history   {found.shortest:,} to {found.longest:,} rows a user, median {found.median:g}")
    ties = f"{found.tied_rows:,} rows tie, {found.tied_users:,} users at their end"
    print(f"time      {found.time}; {ties}")
    if found.parts:
        train, valid, test = found.parts
        print(f"split     {train:,} rows train, {valid:,} valid, {test:,} test")
    print(f"titles    {'yes' if found.titles else 'no'}")
