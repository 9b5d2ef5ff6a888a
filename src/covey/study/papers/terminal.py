"""A reproduced table as Markdown for the docs, and as text of 80 columns."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain

from rich.table import Table

from covey.study.render.tables import Screen, open_table
from covey.study.render.tables import markdown as grid
from covey.study.render.units import NOTHING, brief, code, escaped, fixed, plain
from covey.study.render.wording import note

from . import notes
from .cells import (
    COSTS,
    Cell,
    Column,
    Record,
    by_role,
    chunks,
    costs,
    has_paper,
    hole,
    stat,
    theirs,
)
from .notes import Marks, Note

MARKDOWN_FIGURES = 6  # of ours in a row of a Markdown table
MARKDOWN_ROUNDS, TERMINAL_ROUNDS = 11, 5  # in tables over the rounds
TERMINAL_FIGURES = 4  # in 80 columns; half as many with the paper's beside them
Lines = list[list[str]]
Places = Sequence[tuple[Column, str]]  # a column of the record, and a metric


def markdown(record: Record) -> str:
    """Return figures by metric, costs, notes, claims, and their origin."""
    about = f" ({escaped(record['about'])})" if record["about"] else ""
    parts = [f"**{escaped(notes.title(record))}**{about}"]
    if record["quick"]:
        parts.append(f"> **{notes.QUICK}**")
    marks = notes.impossible(record)
    for metric in record["metrics"]:
        for columns in chunks(record, [metric], MARKDOWN_FIGURES, paper=not record["sweep"]):
            parts.append((_swept if record["sweep"] else _figures)(record, metric, columns, marks))
    courses = notes.courses(record, MARKDOWN_ROUNDS)
    parts += [grid([head, *at], lines) for head, at, lines in courses]
    parts += [notes.COURSE_SAID] if record.get("course") else []
    wrong = [escaped(f"✗{note.number} {note}") for note in marks.values()]
    parts += _listed("✗ The paper's own figures that cannot be:", wrong)
    parts += _listed("Runs that are missing:", [escaped(note) for note in notes.failures(record)])
    lines = [(by_role(cost.row), cost.panel, *cost.figures) for cost in costs(record)]
    parts += [grid(["", "on", *COSTS], lines, left=2), note("costs")]
    parts += _listed(notes.SELECTED, [escaped(note) for note in notes.extra_metrics(record)])
    keys = ("verdict", "text", "reason")
    claims = ([escaped(claim[key]) for key in keys] for claim in record["claims"])
    parts += _listed("Claims:", [f"**{verdict}** {text}: {why}" for verdict, text, why in claims])
    return "\n\n".join([*parts, made_by(record)])


def _listed(head: str, lines: Sequence[str]) -> list[str]:
    return ["\n".join([head, "", *(f"- {line}" for line in lines)])] if lines else []


def made_by(record: Record) -> str:
    """Return the command that made the record, and where."""
    return f"{code(record['command'])}, {escaped(notes.origin(record))}."


def _figures(record: Record, metric: str, columns: Sequence[Column], marks: Marks) -> str:
    head = [metric]
    for label, both in ((at["label"], has_paper(record, at, metric)) for at in columns):
        head += [f"{label}: paper", f"{label}: ours"] if both else [label]
    return grid(head, _rows(record, [(column, metric) for column in columns], marks))


def _rows(record: Record, places: Places, marks: Marks, empty: bool = True) -> Lines:
    """Return a line for each row, and those below it, unless they are to have no `empty` ones."""
    out, both = Lines(), [has_paper(record, *place) for place in places]
    for row in record["rows"]:
        line = [by_role(row)]
        for (column, metric), paper in zip(places, both):
            label = column["label"]
            cell, note = row["cells"].get(label), marks.get((row["label"], label))
            line += [_paper(cell, metric, note)] if paper else []
            line.append(_ours(cell, metric))
        out.append(line)
        for below in notes.below(record, row):
            cells = ((row["cells"].get(column["label"]), metric) for column, metric in places)
            texts = [below.of(*cell) for cell in cells]
            if empty or set(texts) - {"", NOTHING}:
                beside = (["", text] if paper else [text] for text, paper in zip(texts, both))
                out.append([below.name, *chain(*beside)])
    return out


def _swept(record: Record, metric: str, columns: Sequence[Column], marks: Marks) -> str:
    head = [f"{metric}, {columns[0]['panel']}", *(_value(record, column) for column in columns)]
    return grid(head, _points(record, metric, columns, marks))


def _points(record: Record, metric: str, columns: Sequence[Column], marks: Marks) -> Lines:
    """Return a line of a sweep for each row, and one with the paper's figures if there are any."""
    out = []
    for row in record["rows"]:
        cells = [row["cells"].get(column["label"]) for column in columns]
        wrong = [marks.get((row["label"], column["label"])) for column in columns]
        out.append([by_role(row), *(_ours(cell, metric) for cell in cells)])
        paper = [_paper(cell, metric, note) for cell, note in zip(cells, wrong)]
        if set(paper) != {NOTHING}:
            out.append([f"{plain(row['label'])}, the paper", *paper])
        for line in notes.below(record, row):
            out.append([line.name, *(line.of(cell, metric) for cell in cells)])
    return out


def _value(record: Record, column: Column) -> str:
    at = column["x"]
    return plain(column["label"]) if at is None else f"{plain(record['sweep']['label'])}={at:g}"


def _paper(cell: Cell | None, metric: str, note: Note | None) -> str:
    value = fixed(theirs(cell, metric))
    return f"{value} ✗{note.number}" if note and value != NOTHING else value


def _ours(cell: Cell | None, metric: str) -> str:
    found = stat(cell, metric)
    return hole(cell) if math.isnan(found.mean) else str(found)


def terminal(record: Record) -> str:
    """Return the tables one below the other, since they are too wide side by side."""
    screen = Screen()
    if record["quick"]:
        screen.show(f"*** {notes.QUICK} ***")
    screen.show(notes.title(record), *(_sweep(record) if record["sweep"] else _columns(record)))
    screen.show(*_costs(record))
    for head, rounds, lines in notes.courses(record, TERMINAL_ROUNDS):
        rows = ((name, *(f.replace(" to ", "\nto ") for f in figures)) for name, *figures in lines)
        screen.show(open_table("", *rounds, title=head, rows=rows))
    if record.get("course"):
        screen.show(notes.COURSE_SAID)
    for mark in notes.impossible(record).values():
        screen.show(f"✗{mark.number} the paper's figures are impossible: {mark}")
    screen.show(*map(str, (*notes.failures(record), *notes.extra_metrics(record))))
    for claim in record["claims"]:
        verdict, text = plain(claim["verdict"]).upper(), plain(claim["text"])
        screen.show(f"{verdict} {text}: {plain(claim['reason'])}")
    screen.show(f"{plain(record['command'])}, {notes.origin(record)}")
    return str(screen)


def _columns(record: Record) -> list[Table]:
    """Return a table for each dataset and protocol, or several if there are many metrics."""
    marks, out = notes.impossible(record), []
    for column in record["columns"]:
        shown = [(metric, has_paper(record, column, metric)) for metric in record["metrics"]]
        most = TERMINAL_FIGURES // 2 if any(both for _, both in shown) else TERMINAL_FIGURES
        for some in (shown[at : at + most] for at in range(0, len(shown), most)):
            heads = (["paper", metric] if both else [metric] for metric, both in some)
            rows = _rows(record, [(column, metric) for metric, _ in some], marks, empty=False)
            out.append(_table(column["label"], chain(*heads), rows))
    return out


def _table(title: str, heads: Iterable[str], lines: Lines) -> Table:
    rows = ((name, *map(_short, figures)) for name, *figures in lines)
    return open_table("", *heads, title=plain(title), rows=rows)


def _short(figure: str) -> str:
    """Shorten a figure to 0.1430±.0021; figures seed by seed are broken at their commas."""
    short = brief(figure.partition(": ")[0]).replace(" ✗", "✗")
    return short.replace(", ", "\n").replace(" (", "\n(")


def _sweep(record: Record) -> list[Table]:
    out = []
    for metric in record["metrics"]:
        for columns in chunks(record, [metric], TERMINAL_FIGURES, paper=False):
            heads = (_value(record, column) for column in columns)
            points = _points(record, metric, columns, notes.impossible(record))
            out.append(_table(f"{metric}, {columns[0]['panel']}", heads, points))
    return out


def _costs(record: Record) -> list[Table]:
    out: dict[str, Table] = {}
    for cost in costs(record):
        table = out.setdefault(cost.panel, open_table("", title=f"cost, {plain(cost.panel)}"))
        if not table.rows:
            for name in COSTS:
                table.add_column({"seconds": "s"}.get(name, name), justify="right")
        table.add_row(by_role(cost.row), *cost.figures)
    return list(out.values())
