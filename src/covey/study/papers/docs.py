"""Renders the tables of the docs from stored records: whole ones, and short forms of them."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.core import CoveyError, atomic
from covey.study.render.tables import markdown as grid
from covey.study.render.units import number, plain
from covey.study.render.wording import note

from .cells import COSTS, TRAFFIC, TRAFFIC_SAID, Cell, Record, by_role, cost_of, stat, traffic
from .terminal import made_by, markdown

# The kind of table, the record, and rows if not all are shown: <!-- kind:record | row | row -->
MARK = re.compile(r"(<!-- (\w+):([\w-]+)((?: \| [^|\n]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
READS = "the server can read"
SAID = note("families")
Shown = Mapping[str, Callable[[Any], str]]  # kind -> Markdown of a record


def with_rows(record: Record, labels: Sequence[str]) -> Record:
    """Return the record with only the rows of these labels."""
    known = {row["label"]: row for row in record["rows"]}
    if missing := [label for label in labels if label not in known]:
        wrong = f"{record['paper']}-{record['table']} has no row {missing[0]!r}"
        raise CoveyError(f"{wrong}; its rows are: {'; '.join(known)}")
    return {**record, "rows": [known[label] for label in labels]}


def best(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then a short line for each row, best first by the first metric and column."""
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "rounds", "upload of a client"
    means = [(stat(row["cells"].get(label), metric).mean, row) for row in record["rows"]]
    known = [(mean, row) for mean, row in means if not math.isnan(mean)]
    for _, row in sorted(known, key=lambda pair: -pair[0]):
        cell = row["cells"][label]
        _, rounds, up, _ = _cost(cell)
        yield by_role(row), plain(cell["reads"]), str(stat(cell, metric)), rounds, up


def families(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then a line for each row, by the first column and metric."""
    label, metric = record["columns"][0]["label"], record["metrics"][0]
    yield "", READS, metric, "trials", "rounds", "up", "down"
    for row in record["rows"]:
        if cell := row["cells"].get(label):
            yield by_role(row), plain(cell["reads"]), str(stat(cell, metric)), *_cost(cell)


def _cost(cell: Cell) -> tuple[str, ...]:
    costs = dict(zip(COSTS, cost_of([cell])))
    return tuple(costs[name] for name in ("trials", "rounds", "up", "down"))


def shares(record: Record) -> Iterable[tuple[str, ...]]:
    """Yield the head, then each row's last metric as a share of the ceiling in the column."""
    metric, labels = record["metrics"][-1], [column["label"] for column in record["columns"]]
    top = next(row for row in record["rows"] if row["role"] == "ceiling")
    yield f"{metric} over that of {plain(top['label'])}", *labels
    for row in record["rows"]:
        if row is not top:
            cells = ([one["cells"].get(name) for one in (row, top)] for name in labels)
            pairs = ([stat(cell, metric).mean for cell in both] for both in cells)
            yield by_role(row), *(number(mean / above, ".1%") for mean, above in pairs)


def _short(
    lines_of: Callable[[Record], Iterable[Sequence[str]]], left: int, said: str = ""
) -> Callable[[Record], str]:
    """Return what renders a short form; without a remark, the page itself names its origin."""

    def shown(record: Record) -> str:
        head, *lines = lines_of(record)
        text = grid(head, lines, left=left)
        return f"{text}\n\n{said} {made_by(record)}" if said else text

    return shown


SHOWN: dict[str, Callable[[Any], str]] = {
    "table": markdown,
    "traffic": _short(lambda record: (TRAFFIC, *traffic(record)), 2, TRAFFIC_SAID),
    "families": _short(families, 2, SAID),
    "best": _short(best, 2),
    "shares": _short(shares, 1),
}


def render(docs: Path, results: Path, shown: Shown = SHOWN) -> list[Path]:
    """Write every stored table between its marks on the pages; return the pages that changed."""

    def stored(mark: re.Match[str]) -> str:
        file = results / f"{mark[3]}.json"
        if not file.exists() or mark[2] not in shown:
            return mark[0]
        record = json.loads(file.read_text("utf-8"))
        if mark[4]:
            record = with_rows(record, mark[4].removeprefix(" | ").split(" | "))
        return f"{mark[1]}{shown[mark[2]](record)}\n{mark[5]}"

    changed = []
    for page in [docs] if docs.is_file() else sorted(docs.rglob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = MARK.sub(stored, old)
        if new != old:
            atomic.write_text(page, new)
            changed.append(page)
    return changed
