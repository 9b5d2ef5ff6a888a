"""`covey data import`: a dataset from the user's own table."""

import argparse
import os
from pathlib import Path
from typing import Any

from . import arguments
from .data_show import BUILT_IN, done


def add(parts: Any) -> None:
    command = parts.add_parser(
        "import",
        help="your own CSV, JSON lines, Parquet or RecBole file",
        description="Makes a dataset of your table. Columns are found by their usual names; ids"
        " stay as they are, and every row counts as an interaction.",
        epilog="example: covey data import ratings.csv --name mine",
    )
    option = command.add_argument
    rows = "one row each; text, .jsonl, .inter, .parquet; .gz, .zip, or x.zip/ratings.csv"
    option("file", type=Path, help=rows)
    option("--name", help="of the dataset (default: the file's)")
    option("--items", type=Path, metavar="FILE", help="titles: columns item and title")
    for column in ("user", "item", "time", "title", "rating"):
        option(f"--{column}", metavar="COLUMN", help=f"which column is the {column}")
    option("--time-format", metavar="FORMAT", help="how dates are written, such as %%d/%%m/%%Y")
    option("--min-rating", type=float, metavar="N", help="keep rows with a rating of N or more")
    where = "keep rows with this value; repeat it for other columns, or other values of one"
    option("--where", action="append", default=[], metavar="COLUMN=VALUE", help=where)
    own = "which column says train, valid or test: your own split"
    option("--split", metavar="COLUMN", help=own)
    for part in ("valid", "test"):
        own = f"the {part} part of your own split, as a file"
        option(f"--{part}", type=Path, metavar="FILE", help=own)
    option("--columns", metavar="A,B,...", help="names of the columns of a file without a header")
    option("--delimiter", help="found by itself where possible; \\t is a tab, ' ' any spaces")
    option("--encoding", default="utf-8-sig", help="of the text (default: UTF-8)")
    incomplete = "leave out rows without a user, item, time or wanted rating"
    option("--drop-incomplete", action="store_true", help=incomplete)
    option("--replace", action="store_true", help="replace an imported dataset of this name")
    add_filter(command)
    arguments.finish(command, _import, "it")


def add_filter(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--min-user", type=int, default=0, metavar="N", help="keep users with N rows")
    items = "keep items with N rows, before that"
    option("--min-item", type=int, default=0, metavar="N", help=items)
    core = "then keep users and items with N rows each among those kept"
    option("--core", type=int, default=0, metavar="N", help=core)


def _import(options: argparse.Namespace) -> int:
    from covey.data import apply_filter, cache
    from covey.data.folder import Filter
    from covey.data.tables.importing import from_file

    name = options.name or options.file.name.split(".")[0].replace(" ", "-")
    _check_name(name, options.replace)
    columns = _columns(options)
    parts = {part: getattr(options, part) for part in ("valid", "test") if getattr(options, part)}
    read = from_file(options.file, name, columns, options.items, parts)
    dataset = apply_filter(
        read.dataset, Filter(options.min_user, options.min_item, core=options.core)
    )
    path = cache.save(dataset)
    use = f"--dataset {name}" + ("" if dataset.part_E is None else " --set split.kind=given")
    notes = (f"columns read: {read.columns()}", *read.notes)
    return done(options, name, f"imported into {path}; use it with {use}", dataset, notes)


def _check_name(name: str, replace: bool) -> None:
    from covey.core.errors import CoveyError
    from covey.data import cache, folder
    from covey.data.public import registry

    where = os.environ.get("COVEY_DATA")
    if name in registry.NAMES:
        command = f"covey data get {name} --from FILE"
        raise CoveyError(f"'{name}' is a known dataset: {command}, or choose another --name")
    if name == BUILT_IN or (where and name in folder.available(where)):
        raise CoveyError(f"there is a dataset '{name}' that is used first; choose another --name")
    if cache.prepared(name).exists() and not replace:
        found = f"dataset '{name}' is imported already"
        raise CoveyError(f"{found}; choose another --name, or --replace it")


def _columns(options: argparse.Namespace) -> Any:
    from covey.core.errors import CoveyError
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
