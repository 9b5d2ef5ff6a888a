"""Lists as a DataFrame or in a file that is written whole or not at all; a recommender as a card.

A prompt shows a recommender as two lines, and a notebook as a card with a chart.
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.core import CoveyError, atomic

if TYPE_CHECKING:  # a name of a file is checked without loading torch
    from covey.data.dataset import Dataset
    from covey.run.assemble import Prepared

COLUMNS = ("user", "item", "rank", "score", "title")
KINDS = (".csv", ".jsonl", ".parquet")
PARQUET = "a Parquet file"
AT_ONCE = 1 << 16  # rows of a Parquet file in memory
LEFT, BAR, ROW = 215, 200, 22  # pixels: of names, of the longest bar, and the height of a row
BOX = "display:inline-block;padding:10px 14px;border:1px solid #8888;border-radius:6px"
Lists = Iterable[tuple[Any, list["Choice"]]]  # a user and its list, best first


@dataclass(frozen=True)
class Choice:
    """One item of a list of recommendations, by the id that the dataset has for it."""

    item: Any
    title: str
    score: float


def frame(lists: Lists) -> Any:
    """A pandas DataFrame with a row for each item of each list."""
    pandas = _extra("pandas", "as_frame=True")
    return pandas.DataFrame(list(_rows(lists)), columns=list(COLUMNS))


def check_target(path: Path) -> None:
    """Refuses, before anything is computed, a name of another kind, or of a file of a run."""
    if path.suffix not in KINDS or path.name in ("metrics.jsonl", "rounds.jsonl"):
        raise CoveyError(f"{path} is no name for lists; give one that ends in {', '.join(KINDS)}")
    if path.suffix == ".parquet":
        _extra("pyarrow.parquet", PARQUET)


def write(lists: Lists, path: Path, dataset: "Dataset") -> Path:
    """Writes lists as they come, in memory that does not grow with their number.

    A .csv or .parquet file has a row for each item, .jsonl a line for each user. Ids have the type
    that they have in the dataset.
    """
    check_target(path)

    def fill(part: Path) -> None:
        if path.suffix == ".parquet":
            return _fill_parquet(lists, part, dataset)
        with part.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return csv.writer(file).writerows(chain([COLUMNS], _rows(lists)))
            for user, chosen in lists:
                file.write(json.dumps({"user": user, "items": list(map(vars, chosen))}) + "\n")

    atomic.write(path, fill)
    return path


def _rows(lists: Lists) -> Iterator[tuple[Any, ...]]:
    for user, chosen in lists:
        for rank, choice in enumerate(chosen, 1):
            yield user, choice.item, rank, choice.score, choice.title


def _fill_parquet(lists: Lists, part: Path, dataset: "Dataset") -> None:
    arrow, parquet = (_extra(name, PARQUET) for name in ("pyarrow", "pyarrow.parquet"))
    kinds = [arrow.string(), arrow.string(), arrow.int32(), arrow.float64(), arrow.string()]
    for at, ids in enumerate((dataset.users, dataset.items)):
        if ids is not None and ids.dtype.kind in "iu":
            kinds[at] = arrow.from_numpy_dtype(ids.dtype)
    schema, rows = arrow.schema(list(zip(COLUMNS, kinds))), _rows(lists)
    with parquet.ParquetWriter(part, schema) as writer:
        while some := list(islice(rows, AT_ONCE)):
            writer.write_table(arrow.table(list(map(list, zip(*some))), schema=schema))


def _extra(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        remedy = "install it with pip install 'covey[tables]'"
        raise CoveyError(f"{what} needs {name.partition('.')[0]}; {remedy}") from error


def text(result: dict[str, Any], prepared: "Prepared") -> str:
    """Two lines: what was fitted to what, and a metric of the test beside floor and ceiling."""
    title, sizes, tested, figures = _content(result, prepared)
    line = f"\n  {tested}: " + ", ".join(f"{name} {value:.4f}" for name, value, _ in figures)
    return f"<Recommender: {title}, {sizes}{line if figures else ''}>"


def html(result: dict[str, Any], prepared: "Prepared") -> str:
    """The same as HTML with a bar chart; it needs no style sheet and takes the page's colours."""
    title, sizes, tested, figures = _content(result, prepared)
    most, chart = max([value for _, value, _ in figures], default=0), ""
    for at, (name, value, role) in enumerate(figures):
        wide, y = BAR * max(value, 0) / (most if most > 0 else 1), ROW * at + 15
        colour, bold = ("#999", "") if role else ("#2f7ed8", ' font-weight="bold"')
        chart += f'<rect x="{LEFT}" y="{y - 12}" width="{wide:.1f}" height="16" fill="{colour}"/>'
        chart += f'<text x="{LEFT - 8}" y="{y}" text-anchor="end"{bold}>{escape(name)}</text>'
        chart += f'<text x="{LEFT + wide + 6:.0f}" y="{y}"{bold}>{value:.4f}</text>'
    size = f'width="{LEFT + BAR + 60}" height="{ROW * len(figures)}"'
    chart = f'<svg {size} role="img" font-size="12" fill="currentColor">{chart}</svg>'
    about = f'<div style="font-size:12px;margin:2px 0 6px">{escape(sizes)}</div>'
    about += f'<div style="font-size:12px">{escape(tested)}</div>{chart}' if figures else ""
    return f'<div style="{BOX};font-family:sans-serif"><b>{escape(title)}</b>{about}</div>'


def _content(
    result: dict[str, Any], prepared: "Prepared"
) -> tuple[str, str, str, list[tuple[str, float, str]]]:
    """Title, sizes, what was measured, and figures by name: floor, method and ceilings."""
    split, ours, test = prepared.split, result.get("method") or "a method", result.get("test", {})
    ndcg = (name for name in test if name.startswith("ndcg@"))
    select = result.get("config", {}).get("evaluate", {}).get("select")
    metric = select if select in test else next(ndcg, next(iter(test), ""))
    rounds, best = result.get("rounds"), result.get("round")
    when = f", round {best} of {rounds}" if rounds and best else ""  # none for a closed form
    groups = {"floor": result.get("floor", {}), "": {ours: test}}
    groups["ceiling"] = result.get("ceiling", {})
    figures = []
    for role, name, of in ((r, n, of) for r, group in groups.items() for n, of in group.items()):
        if isinstance(of, dict) and math.isfinite(of.get(metric, math.nan)):
            figures.append((_short(name) + (f" ({role})" if role else ""), float(of[metric]), role))
    sizes = f"{split.n_users:,} users, {split.n_items:,} items"
    title = f"{_short(ours)} on {_short(prepared.dataset.name)}"
    return title, sizes, f"{_short(metric)} of the test{when}", figures


def _short(name: Any) -> str:
    """A name as one line of at most 24 printable characters."""
    line = "".join(c if c.isprintable() else " " for c in str(name))
    return line if len(line) <= 24 else f"{line[:23]}…"
