"""Reproduced tables and figures as a page: ours beside the paper's, and verdicts on claims."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from covey.study.render import markup
from covey.study.render.markup import Child, Html, aside, folded, join, listed, tag
from covey.study.render.tables import scrolling, table
from covey.study.render.units import fixed, number, plain
from covey.study.render.wording import note

from . import notes
from .cells import COSTS, Cell, Column, Record, Row, chunks, costs, has_paper, hole, stat, theirs
from .notes import Marks, Note
from .plots import courses, pictures, sweeps

FIGURES = 6  # of ours in a row of a table
BADGES = {"holds": "good", "fails": "bad"}


def page(records: Sequence[Record]) -> str:
    """Return a self-contained page; several records have a table of contents."""
    alone = len(records) == 1
    papers = ", ".join(dict.fromkeys(plain(record["paper"]) for record in records))
    several = f"{papers}: {len(records)} tables and figures reproduced"
    quick = "QUICK: " if any(record["quick"] for record in records) else ""
    shown = enumerate(_part(record, i, alone) for i, record in enumerate(records))
    parts = (tag("section", *part, id=f"part{i}") for i, part in shown)
    lines = []
    for i, record in enumerate(records):
        found = Counter(claim["verdict"] for claim in record["claims"])
        counts = (badge(verdict, f"{many} ") for verdict, many in found.items())
        lines.append(join(tag("a", notes.title(record), href=f"#part{i}"), *counts))
    contents = None if alone else tag("nav", listed(lines, "contents"), aria_label="Contents")
    heading = quick + (notes.title(records[0]) if alone else several)
    return markup.page(heading, contents, *parts)


def badge(verdict: str, many: str = "") -> Html:
    return markup.badge(many + verdict, BADGES.get(verdict, "open"))


def _part(record: Record, at: int, alone: bool) -> list[Child]:
    marks = notes.impossible(record)
    figures = _tables(record, marks, at)
    shown: list[Child] = [_claims(record), *figures, pictures(record, marks)]
    if record["sweep"]:
        in_table = folded("The figures in a table", *figures)
        shown = [sweeps(record, marks, _claims(record)), in_table]
    where = join(tag("code", plain(record["command"])), f", {notes.origin(record)}.")
    return [
        None if alone else tag("h2", notes.title(record)),
        aside(record["about"]) if record["about"] else None,
        tag("p", notes.QUICK, class_="quick") if record["quick"] else None,
        *shown,
        courses(record, notes.PICTURE_SAID),
        _notes(marks, at),
        _listed(aside("Missing runs:"), notes.failures(record), "notes"),
        _tests(record),
        tag("h3", "Cost"),
        _costs(record),
        aside(note("costs")),
        _listed(tag("p", notes.SELECTED), notes.extra_metrics(record)),
        tag("p", where, class_="aside where"),
    ]


def _listed(lead: Html, notes: Iterable[Note], kind: str | None = None) -> Html | None:
    lines = [str(note) for note in notes]
    return join(lead, listed(lines, kind)) if lines else None


def _claims(record: Record) -> Html | None:
    items = (
        join(badge(claim["verdict"]), tag("span", claim["text"], tag("small", claim["reason"])))
        for claim in record["claims"]
    )
    return listed(items, "claims") if record["claims"] else None


def _tables(record: Record, marks: Marks, at: int) -> list[Html]:
    out = []
    for columns in chunks(record, record["metrics"], FIGURES):
        heads = [_head(record, column) for column in columns]
        groups = (
            tag("th", column["label"], colspan=len(head), scope="colgroup", class_="group")
            for column, head in zip(columns, heads)
        )
        first = tag("tr", tag("th", "method", rowspan=2, scope="col"), *groups)
        second = tag("tr", *(cell for head in heads for cell in head))
        rows = (line for row in record["rows"] for line in _lines(record, row, columns, marks, at))
        body = tag("table", tag("thead", first, second), tag("tbody", *rows), class_="paper-ours")
        out.append(scrolling(body, "paper and ours"))
    return out


def _lines(record: Record, row: Row, columns: list[Column], marks: Marks, at: int) -> list[Html]:
    figures = (cell for column in columns for cell in _figures(record, row, column, marks, at))
    kind = "reference" if row["role"] in ("floor", "ceiling") else None
    named = join(row["label"], tag("small", f" {row['role']}") if row["role"] else None)
    out = [tag("tr", tag("th", named, scope="row"), *figures, class_=kind)]
    for line in notes.below(record, row):
        cells = []
        for column in columns:
            for metric in record["metrics"]:
                both = has_paper(record, column, metric)
                text = line.of(row["cells"].get(column["label"]), metric)
                cells += [tag("td", text, colspan=2 if both else None, class_="num begins")]
        out.append(tag("tr", tag("th", line.name, scope="row"), *cells, class_="reference below"))
    return out


def _head(record: Record, column: Column) -> list[Html]:
    out = []
    for metric in record["metrics"]:
        both = has_paper(record, column, metric)
        for i, who in enumerate(("paper", "ours") if both else ("ours",)):
            kind = "num" if i else "num begins"
            out.append(tag("th", metric, tag("small", who), scope="col", class_=kind))
    return out


def _figures(record: Record, row: Row, column: Column, marks: Marks, at: int) -> list[Html]:
    """Return the cells of a row in one column of the record."""
    cell, note = row["cells"].get(column["label"]), marks.get((row["label"], column["label"]))
    metrics = record["metrics"]
    both = [has_paper(record, column, metric) for metric in metrics]
    if cell and cell["errors"] and not cell["mean"] and not any(both):
        return [tag("td", hole(cell), class_="hole begins", colspan=len(metrics))]
    out = []
    for metric, paper in zip(metrics, both):
        if paper:
            out.append(tag("td", *_theirs(cell, metric, note, at), class_="num theirs begins"))
        out.append(_ours(cell, metric, "" if paper else " begins"))
    return out


def _theirs(cell: Cell | None, metric: str, note: Note | None, at: int) -> list[Child]:
    value = theirs(cell, metric)
    if note is None or math.isnan(value):
        return [fixed(value)]
    href, label = f"#part{at}-{note.number}", f"impossible: {note.text}"
    link = tag("a", f"✗{note.number}", href=href, aria_label=label)
    return [tag("span", fixed(value), " ", link, class_="wrong", title=note.text)]


def _ours(cell: Cell | None, metric: str, begins: str) -> Html:
    found = stat(cell, metric)
    if math.isnan(found.mean):
        failed = cell is not None and bool(cell["errors"])
        return tag("td", hole(cell), class_=("hole" if failed else "num") + begins)
    seeds = None
    if len(found.values) > 1:
        seeds = f"seeds: {', '.join(map(fixed, found.values))}"
    return tag("td", str(found), class_="num" + begins, title=seeds)


def _notes(marks: Marks, at: int) -> Html | None:
    if not marks:
        return None
    found = ((note.number, f"✗{note.number} {note}") for note in marks.values())
    items = (tag("li", text, id=f"part{at}-{number}") for number, text in found)
    lead = tag("p", "✗ These figures of the paper are impossible:", class_="aside wrong")
    return join(lead, tag("ul", *items, class_="notes"))


def _tests(record: Record) -> Html | None:
    rows: list[list[Child]] = []
    for test in (test for claim in record["claims"] for test in claim["tests"]):
        against = test.get("against") or test["column"]
        also = "" if against == test["column"] else f" against {against}"
        difference, low, high = (number(test.get(k), "+.4f") for k in ("difference", "low", "high"))
        ps = (number(test.get(key), ".2g") for key in ("p", "p_holm"))
        verdict = join(badge(test["verdict"]), tag("small", f" {plain(test['reason'])}"))
        who = f"{plain(test['better'])} over {plain(test['worse'])}"
        where = plain(test["column"] + also)
        rows.append([who, where, test["metric"], verdict, difference, f"{low} to {high}", *ps])
    if not rows:
        return None
    head = ["test", "on", "metric", "verdict", "difference", "interval", "p", "p, Holm"]
    whole = table(head, rows, left=4, kind="tests")
    return folded(f"Tests behind the verdicts: {len(rows)}", whole)


def _costs(record: Record) -> Html:
    """Show the costs in a block for each dataset and protocol."""
    head = [tag("th", "method", scope="col")]
    head += [tag("th", name, scope="col", class_="num") for name in COSTS]
    blocks: dict[str, list[Html]] = {}
    for cost in costs(record):
        name = tag("th", cost.panel, colspan=len(head), scope="rowgroup", class_="group")
        block = blocks.setdefault(cost.panel, [tag("tr", name)])
        figures = (tag("td", figure, class_="num") for figure in cost.figures)
        block.append(tag("tr", tag("th", cost.row["label"], scope="row"), *figures))
    bodies = (tag("tbody", *block) for block in blocks.values())
    return scrolling(tag("table", tag("thead", tag("tr", *head)), *bodies, class_="costs"), "cost")
