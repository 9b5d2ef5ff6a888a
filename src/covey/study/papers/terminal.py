"""A reproduced table as Markdown for the docs, and as text of 80 columns."""

import math
from collections.abc import Sequence
from itertools import chain

from rich.table import Table

from covey.study.render.tables import Screen, open_table
from covey.study.render.tables import markdown as grid
from covey.study.render.units import NOTHING, brief, code, escaped, fixed, plain

from . import notes
from .cells import Cell, Column, Record, by_role, chunks, has_paper, hole, stat, theirs
from .costs import COSTS, COSTS_SAID, costs
from .notes import Marks, Note

MARKDOWN_FIGURES = 6  # of ours in a row of a Markdown table
MARKDOWN_ROUNDS, TERMINAL_ROUNDS = 11, 5  # in tables over the rounds
TERMINAL_FIGURES = 4  # in 80 columns; half as many with the paper's beside them
Lines = list[list[str]]


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
    parts += [grid(["", "on", *COSTS], lines, left=2), COSTS_SAID]
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
    head, lines = [metric], [[by_role(row)] for row in record["rows"]]
    more = [[[line.name] for line in notes.below(record, row)] for row in record["rows"]]
    for column in columns:
        label = column["label"]
        paper = has_paper(record, column, metric)
        head += [f"{label}: paper", f"{label}: ours"] if paper else [label]
        for row, line, under in zip(record["rows"], lines, more):
            cell = row["cells"].get(label)
            if paper:
                line.append(_paper(cell, metric, marks.get((row["label"], label))))
            line.append(_ours(cell, metric))
            for text, one in zip(under, notes.below(record, row)):
                text += ["", one.of(cell, metric)] if paper else [one.of(cell, metric)]
    return grid(head, [text for line, under in zip(lines, more) for text in (line, *under)])


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
        both = any(has_paper(record, column, metric) for metric in record["metrics"])
        most = TERMINAL_FIGURES // 2 if both else TERMINAL_FIGURES
        for at in range(0, len(record["metrics"]), most):
            out.append(_column(record, column, record["metrics"][at : at + most], marks))
    return out


def _column(record: Record, column: Column, metrics: Sequence[str], marks: Marks) -> Table:
    both = [has_paper(record, column, metric) for metric in metrics]
    heads = (["paper", name] if paper else [name] for name, paper in zip(metrics, both))
    table = open_table("", *chain(*heads), title=plain(column["label"]))
    for row in record["rows"]:
        cell, figures = row["cells"].get(column["label"]), list[str]()
        note = marks.get((row["label"], column["label"]))
        for metric, paper in zip(metrics, both):
            figures += [_paper(cell, metric, note).replace(" ", "")] if paper else []
            figures.append(_short(_ours(cell, metric)))
        table.add_row(by_role(row), *figures)
        for line in notes.below(record, row):
            texts = [_short(line.of(cell, metric)) for metric in metrics]
            if set(texts) - {"", NOTHING}:
                cells = (["", text] if paper else [text] for text, paper in zip(texts, both))
                table.add_row(line.name, *chain(*cells))
    return table


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
            rows = [(name, *map(_short, figures)) for name, *figures in points]
            title = f"{metric}, {plain(columns[0]['panel'])}"
            out.append(open_table("", *heads, title=title, rows=rows))
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
