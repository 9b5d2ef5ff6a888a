"""How a prompt and a notebook show a recommender: as two lines, or as a card with a chart."""

import math
from html import escape
from typing import Any

from covey.run.assemble import Prepared

LEFT, BAR, ROW = 215, 200, 22  # pixels: of names, of the longest bar, and the height of a row
BOX = "display:inline-block;padding:10px 14px;border:1px solid #8888;border-radius:6px"


def text(result: dict[str, Any], prepared: Prepared) -> str:
    """Two lines: what was fitted to what, and a metric of the test beside floor and ceiling."""
    title, sizes, tested, figures = _content(result, prepared)
    line = f"\n  {tested}: " + ", ".join(f"{name} {value:.4f}" for name, value, _ in figures)
    return f"<Recommender: {title}, {sizes}{line if figures else ''}>"


def html(result: dict[str, Any], prepared: Prepared) -> str:
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
    result: dict[str, Any], prepared: Prepared
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
    figures = [
        (_short(name) + (f" ({role})" if role else ""), float(measured[metric]), role)
        for role, group in groups.items()
        for name, measured in group.items()
        if isinstance(measured, dict) and math.isfinite(measured.get(metric, math.nan))
    ]
    sizes = f"{split.n_users:,} users, {split.n_items:,} items"
    title = f"{_short(ours)} on {_short(prepared.dataset.name)}"
    return title, sizes, f"{_short(metric)} of the test{when}", figures


def _short(name: Any) -> str:
    """A name as one line of at most 24 printable characters."""
    line = "".join(c if c.isprintable() else " " for c in str(name))
    return line if len(line) <= 24 else f"{line[:23]}…"
