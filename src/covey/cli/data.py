"""`covey data`: the datasets that are here, and how others come here."""

import argparse
import json
import os
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from covey.data.checks import Summary
    from covey.data.dataset import Dataset
    from covey.data.public.registry import Source

BUILT_IN = "synthetic"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    data = commands.add_parser(
        "data", help="list, get, import and look at datasets", epilog="example: covey data list"
    )
    parts = data.add_subparsers(required=True, metavar="list|get|import|show")
    each = parts.add_parser(
        "list", help="known datasets and those that are here", epilog="example: covey data list"
    )
    _finish(each, _list)
    _add_get(parts)
    _add_import(parts)
    show = parts.add_parser(
        "show", help="counts and traps of one", epilog="example: covey data show synthetic"
    )
    show.add_argument("name", help="a name of covey data list, or a prepared .npz")
    show.add_argument(
        "--find",
        metavar="TEXT",
        help="items by id or part of a title, with the rows that runs know",
    )
    _add_filter(show)
    _finish(show, _show)


def _add_get(parts: Any) -> None:
    get = parts.add_parser(
        "get",
        help="fetch a public dataset from its original place, or take your copy",
        description="Shows the licence, fetches (and resumes), checks, and prepares a dataset into the cache"
        " ($COVEY_CACHE, else the platform's cache folder).",
        epilog="example: covey data get ml-100k --from ml-100k.zip",
    )
    get.add_argument("name", help="a name of covey data list")
    get.add_argument(
        "--from",
        dest="copy",
        type=Path,
        metavar="PATH",
        help="your copy: a folder, archive or file",
    )
    get.add_argument(
        "--recbole", action="store_true", help="ml-100k from the recbole wheel of the package index"
    )
    get.add_argument("--again", action="store_true", help="prepare it even if it is here")
    _finish(get, _get)


def _add_import(parts: Any) -> None:
    own = parts.add_parser(
        "import",
        help="your own CSV, TSV, Parquet or RecBole file",
        description="Makes a dataset of your table. Columns are found by their usual names; ids stay as they are.",
        epilog="example: covey data import ratings.csv --name mine",
    )
    own.add_argument(
        "file",
        type=Path,
        help="one row for each interaction; .csv, .tsv, .inter, .parquet, also .gz",
    )
    own.add_argument("--name", help="of the dataset (default: the file's)")
    own.add_argument("--items", type=Path, metavar="FILE", help="titles: columns item and title")
    for column in ("user", "item", "time", "title"):
        own.add_argument(f"--{column}", metavar="COLUMN", help=f"which column is the {column}")
    own.add_argument(
        "--split", metavar="COLUMN", help="which column says train, valid or test: your own split"
    )
    for part in ("valid", "test"):
        own.add_argument(
            f"--{part}",
            type=Path,
            metavar="FILE",
            help=f"the {part} part of your own split, as a file",
        )
    own.add_argument(
        "--columns", metavar="A,B,...", help="names of the columns of a file without a header"
    )
    own.add_argument("--delimiter", help="found by itself where possible; \\t is a tab")
    own.add_argument("--encoding", default="utf-8-sig", help="of the text (default: UTF-8)")
    own.add_argument("--drop-untimed", action="store_true", help="drop rows that have no time")
    own.add_argument(
        "--replace", action="store_true", help="replace an imported dataset of this name"
    )
    _add_filter(own)
    _finish(own, _import)


def _add_filter(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--min-user", type=int, default=0, metavar="N", help="keep users with N rows"
    )
    command.add_argument(
        "--min-item", type=int, default=0, metavar="N", help="keep items with N rows, before that"
    )


def _finish(command: argparse.ArgumentParser, act: Any) -> None:
    command.add_argument("--json", action="store_true", help="print it as JSON")
    command.set_defaults(act=act)


def _list(options: argparse.Namespace) -> int:
    from covey.data import cache, folder
    from covey.data.public.registry import SOURCES

    where = os.environ.get("COVEY_DATA")
    local = folder.available(where) if where else []
    kept = cache.names()
    known = {source.name: source for source in SOURCES}
    here = (
        dict.fromkeys(known, "no")
        | dict.fromkeys(kept, "cache")
        | dict.fromkeys(local, "COVEY_DATA")
    )
    here = {BUILT_IN: "built in"} | here
    rows = [
        {"name": n, "here": h, "title": known[n].title if n in known else ""}
        for n, h in here.items()
    ]
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"{'name':<26}{'here':<12}what")
    for row in rows:
        print(f"{row['name']:<26}{row['here']:<12}{row['title']}".rstrip())
    print("get one: covey data get NAME; your own: covey data import FILE")
    return 0


def _get(options: argparse.Namespace) -> int:
    from covey.core.errors import CoveyError
    from covey.data import cache, folder
    from covey.data.public import getting
    from covey.data.public.registry import find

    source = find(options.name)
    if options.recbole and source.name != "ml-100k":
        raise CoveyError("the recbole wheel has ml-100k only; leave --recbole out")
    where = os.environ.get("COVEY_DATA")
    if where and source.name in folder.available(where):
        if options.copy:
            raise CoveyError(
                f"COVEY_DATA has a copy of '{source.name}', which is used first; unset it to take another"
            )
        return _done(options, source.name, f"already in {where}; nothing to get")
    path = cache.prepared(source.name)
    if path.exists() and not (options.copy or options.again or options.recbole):
        return _done(options, source.name, f"already in {path}; --again prepares it anew")
    _licence(source)
    dataset = (
        getting.get_recbole() if options.recbole else getting.get(source, options.copy, _progress())
    )
    return _done(options, source.name, f"prepared in {path}", dataset, _differs(source, dataset))


def _licence(source: "Source") -> None:
    print(f"{source.title}\n  from    {source.page}\n  licence {source.licence}", file=sys.stderr)


def _progress() -> Any:
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int | None) -> None:
        of = f" of {total / 1e6:.1f}" if total else ""
        print(
            f"\r  {done / 1e6:.1f}{of} MB ",
            end="\n" if done == total else "",
            file=sys.stderr,
            flush=True,
        )

    return show


def _differs(source: "Source", dataset: "Dataset") -> tuple[str, ...]:
    found = (dataset.n_users, dataset.n_items, len(dataset))
    if not source.counts or found == source.counts:
        return ()
    users, items, rows = source.counts
    return (
        f"the papers' file has {users:,} users, {items:,} items, {rows:,} rows: this is another version",
    )


def _import(options: argparse.Namespace) -> int:
    from covey.data import apply_filter, cache
    from covey.data.folder import Filter
    from covey.data.tables.importing import from_file

    name = options.name or options.file.name.split(".")[0].replace(" ", "-")
    _check_name(name, options.replace)
    columns = _columns(options)
    parts = {part: getattr(options, part) for part in ("valid", "test") if getattr(options, part)}
    read = from_file(options.file, name, columns, options.items, parts)
    dataset = apply_filter(read.dataset, Filter(options.min_user, options.min_item))
    path = cache.save(dataset)
    use = f"--dataset {name}" + ("" if dataset.part_E is None else " --set split.kind=given")
    notes = (f"columns read: {read.columns()}", *read.notes)
    return _done(options, name, f"imported into {path}; use it with {use}", dataset, notes)


def _check_name(name: str, again: bool) -> None:
    from covey.core.errors import CoveyError
    from covey.data import cache, folder
    from covey.data.public import registry

    where = os.environ.get("COVEY_DATA")
    if name in registry.NAMES:
        raise CoveyError(
            f"'{name}' is a known dataset: covey data get {name} --from FILE, or choose another --name"
        )
    if name == BUILT_IN or (where and name in folder.available(where)):
        raise CoveyError(f"there is a dataset '{name}' that is used first; choose another --name")
    if cache.prepared(name).exists() and not again:
        raise CoveyError(
            f"dataset '{name}' is imported already; choose another --name, or --replace it"
        )


def _columns(options: argparse.Namespace) -> Any:
    from covey.core.errors import CoveyError
    from covey.data.tables.importing import Columns

    delimiter = options.delimiter.replace("\\t", "\t") if options.delimiter else None
    if delimiter and len(delimiter) != 1:
        raise CoveyError(
            f"--delimiter '{options.delimiter}': one character; several, such as '::', cannot be read"
        )
    names = tuple(name.strip() for name in options.columns.split(",")) if options.columns else ()
    own = {kind: getattr(options, kind) for kind in ("user", "item", "time", "title", "split")}
    return Columns(
        **own,
        names=names,
        delimiter=delimiter,
        encoding=options.encoding,
        drop_untimed=options.drop_untimed,
    )


def _show(options: argparse.Namespace) -> int:
    from covey.data import DEFAULT_FILTERS, apply_filter, load
    from covey.data.folder import Filter
    from covey.data.public.registry import SOURCES

    asked = Filter(options.min_user, options.min_item)
    dataset = load(options.name, filter=asked)  # as the file has it, unless something else is asked
    source = next((s for s in SOURCES if s.name == dataset.name), None)
    papers = DEFAULT_FILTERS.get(dataset.name) if asked == Filter() else None
    cut = apply_filter(dataset, papers) if papers else None
    if options.find is not None:
        return _find(options, cut or dataset)
    what = source.title if source else "built in" if dataset.name == BUILT_IN else "your own"
    notes = (f"licence: {source.licence}",) if source else ()
    return _done(options, dataset.name, what, dataset, notes, cut)


def _find(options: argparse.Namespace, dataset: "Dataset") -> int:
    """In the dataset as runs have it: a filter changes the rows."""
    from covey.core.errors import CoveyError
    from covey.data.naming import find, ids_of, named

    ids, titles = ids_of(dataset), dataset.titles or [""] * dataset.n_items
    rows = find(dataset, options.find)
    if not rows:
        raise CoveyError(
            f"no item of {dataset.name} has the id '{options.find}', or that in its title; try a part"
        )
    if options.json:
        print(json.dumps([{"row": row, "id": ids[row], "title": titles[row]} for row in rows]))
        return 0
    for row in rows:
        print(named(row, ids[row], titles[row]))
    return 0


def _done(
    options: argparse.Namespace,
    name: str,
    what: str,
    dataset: "Dataset | None" = None,
    notes: tuple[str, ...] = (),
    cut: "Dataset | None" = None,
) -> int:
    """Prints what was done, and how the dataset looks where there is one."""
    from covey.data.checks import summarise, warnings

    found = summarise(dataset) if dataset else None
    filtered = summarise(cut) if cut else None
    notes = (*notes, *(warnings(found) if found else ()))
    if options.json:
        tree = {
            "name": name,
            "what": what,
            "notes": notes,
            "facts": _tree(found),
            "papers": _tree(filtered),
        }
        print(json.dumps({key: value for key, value in tree.items() if value is not None}))
        return 0
    print(f"{name}: {what}")
    if found:
        _table(found, filtered)
    for note in notes:
        print(textwrap.fill(note, 80, initial_indent="note: ", subsequent_indent="      "))
    return 0


def _tree(found: "Summary | None") -> dict[str, Any] | None:
    return (
        asdict(found) | {"duplicates": found.duplicates, "density": found.density}
        if found
        else None
    )


def _table(found: "Summary", filtered: "Summary | None") -> None:
    print(f"{'':<16}{'users':>10}{'items':>10}{'rows':>12}{'distinct':>12}{'density':>10}")
    for label, row in (("all rows", found), ("papers' filter", filtered)):
        if row:
            counts = f"{row.users:>10,}{row.items:>10,}{row.rows:>12,}{row.distinct:>12,}"
            print(f"{label:<16}{counts}{row.density:>10.3%}")
    print(f"history   {found.shortest:,} to {found.longest:,} rows a user, median {found.median:g}")
    print(
        f"time      {found.time}; {found.tied_rows:,} rows tie, {found.tied_users:,} users at their end"
    )
    if found.parts:
        train, valid, test = found.parts
        print(f"split     {train:,} rows train, {valid:,} valid, {test:,} test")
    print(f"titles    {'yes' if found.titles else 'no'}")
