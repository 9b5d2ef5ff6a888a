"""A matrix as text of 80 columns, and as Markdown for the docs."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from covey.study.render import tables
from covey.study.render.tables import Screen, open_table
from covey.study.render.units import code, escaped, origin

from .formatting import Record, cells, grid, labels, notes, setting, shown, title

WIDTH = 80


def terminal(record: Record, k: int = 10) -> str:
    """Return tables of exposure and accuracy, and of filters and rules if there are any."""
    screen = Screen(WIDTH)
    screen.show(title(record), setting(record))
    for name, fmt in shown(record, k):
        screen.show(f"\n{name}")
        screen.show(*_tables(record, grid(record, fmt)), end="")
    screen.show(*(f"\n{note}" for note in notes(record)), end="")
    return str(screen)


def _tables(record: Record, lines: Sequence[Sequence[str]]) -> Iterator[Table]:
    """Split a table into tables of as many columns as fit."""
    head = ["", *labels(record, "defences")]
    wide = [max(len(line[i]) for line in (head, *lines)) + 2 for i in range(len(head))]
    at = 1
    while at < len(head):
        end = at + 1
        while end < len(head) and sum(wide[at : end + 1]) + wide[0] <= WIDTH:
            end += 1
        table = open_table("", *head[at:end])
        for line in lines:
            table.add_row(line[0], *line[at:end])
        yield table
        at = end


def markdown(record: Record, k: int = 10) -> str:
    """Return the same tables for a page of the docs."""
    parts = [f"**{escaped(title(record))}** ({escaped(setting(record))})"]
    for name, fmt in shown(record, k):
        parts.append(tables.markdown([name, *labels(record, "defences")], grid(record, fmt)))
    lines = [f"- {escaped(note)}" for note in notes(record)]
    parts += ["\n".join(lines)] if lines else []
    taken = [s for _, _, cell in cells(record) for s in cell["cpu_seconds"]["values"]]
    cost = f"{len(taken)} runs, {sum(taken) / 60:.1f} CPU minutes in all"
    parts.append(f"{code(record['command'])}, {origin(record)}: {cost}.")
    return "\n\n".join(parts)
