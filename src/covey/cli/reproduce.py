"""`covey reproduce`: a paper's tables and figures, with a verdict on each of its claims."""

import argparse
import json

from covey.core import CoveyError, atomic, positive

from . import arguments


def act(options: argparse.Namespace) -> int:
    from covey.study.papers.folder import papers

    if not options.paper and not options.docs:
        raise CoveyError(f"name a paper; there are {', '.join(papers(options.papers)) or 'none'}")
    positive("reproduce", jobs=options.jobs)
    if options.paper:
        _reproduce(options)
    if options.docs:
        from covey.study.matrix.formatting import markdown as matrix
        from covey.study.matrix.map_page import markdown as maps
        from covey.study.papers.docs import SHOWN, render

        render(options.docs, options.results, SHOWN | {"matrix": matrix, "maps": maps})
    return 0


def _reproduce(options: argparse.Namespace) -> None:
    """Runs the tables, stores their records, and writes a page of them."""
    from covey.data.cache import find
    from covey.study.papers.plan import Scope, datasets, tables

    scope = Scope(options.quick, tuple(options.dataset), tuple(options.set))
    wanted = tables(options.paper, options.tables, options.papers)
    there = datasets(wanted)
    for name in scope.datasets:
        if name not in there:
            raise CoveyError(f"no column is of dataset {name!r}; there are {', '.join(there)}")
    names = scope.datasets or there
    for name in [] if options.done else names:
        find(name)  # a missing dataset is an error before anything runs
    from covey import data
    from covey.study.papers.page import page
    from covey.study.papers.record import reproduce, store
    from covey.study.papers.terminal import terminal

    for name in [] if options.done else names:
        data.load(name)  # so is one that cannot be read
    say = arguments.reporter(options)
    old = options.results if options.keep else None
    records = reproduce(wanted, options.work, scope, options.jobs, say, not options.done, old)
    cells = ([cell for row in made["rows"] for cell in row["cells"].values()] for made in records)
    # Without any finished run, an older record would be lost.
    filled = [made for made, of in zip(records, cells) if any(cell["figures"] for cell in of)]
    if options.done and not filled:
        wrong = f"nothing of this has been run yet in {options.work}"
        raise CoveyError(f"{wrong}; leave out --done to run it")
    stored = [str(store(made, options.results)) for made in filled]
    options.work.mkdir(parents=True, exist_ok=True)
    html = options.work / f"{records[0]['paper']}.html"
    atomic.write_text(html, page(records))
    print(json.dumps(records) if options.json else "\n\n".join(map(terminal, records)))
    say(f"records in {', '.join(stored) or 'no file: every run failed'}; page in {html}")
