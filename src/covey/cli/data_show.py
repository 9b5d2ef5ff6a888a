"""`covey data show`: the counts of a dataset, also printed after another command has made one."""

import argparse
import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from covey.data.checks import Summary
    from covey.data.dataset import Dataset

BUILT_IN = "synthetic"


def show(options: argparse.Namespace) -> int:
    from covey.data.places import find

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
    from covey.core.errors import CoveyError
    from covey.data.naming import find, ids_of, named

    ids, titles = ids_of(dataset), dataset.titles or [""] * dataset.n_items
    rows = find(dataset, options.find)
    if not rows:
        missing = f"no item of {dataset.name} has the id '{options.find}', or that in its title"
        raise CoveyError(f"{missing}; try a part")
    if options.json:
        print(json.dumps([{"row": row, "id": ids[row], "title": titles[row]} for row in rows]))
        return 0
    for row in rows:
        print(named(row, ids[row], titles[row]))
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
        tree |= {k: _tree(v) for k, v in (("facts", found), ("papers", filtered)) if v}
        print(json.dumps(tree))
        return 0
    print(f"{name}: {what}")
    if found:
        _table(found, filtered)
    for note in notes:
        print(textwrap.fill(note, 80, initial_indent="note: ", subsequent_indent="      "))
    return 0


def _tree(found: "Summary") -> dict[str, Any]:
    return asdict(found) | {"duplicates": found.duplicates, "density": found.density}


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
