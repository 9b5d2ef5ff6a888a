"""How a prompt and a notebook show a recommender: as two lines, or as a card with a chart."""

import math
from html import escape
from typing import Any

from covey.run.assemble import Prepared

LONGEST = 30  # characters of a name
LEFT, BAR, ROW = 190, 200, 22  # pixels: of names, of the longest bar, and the height of a row
BOX = "display:inline-block;padding:10px 14px;border:1px solid #8888;border-radius:6px"
Figures = dict[str, tuple[float, bool]]  # by name; whether it is the method or a reference


def text(result: dict[str, Any], prepared: Prepared) -> str:
    """Two lines: what was fitted to what, and a metric of the test beside floor and ceiling."""
    title, sizes, tested, figures = _content(result, prepared)
    line = f"\n  {tested}: " + ", ".join(f"{name} {v:.4f}" for name, (v, _) in figures.items())
    return f"<Recommender: {title}, {sizes}{line if figures else ''}>"


def html(result: dict[str, Any], prepared: Prepared) -> str:
    """The same as HTML with a bar chart; it needs no style sheet and takes the page's colours."""
    title, sizes, tested, figures = _content(result, prepared)
    most, words, bars = max([v for v, _ in figures.values()], default=0), "", ""
    for at, (name, (value, ours)) in enumerate(figures.items()):
        wide, y = BAR * max(value, 0) / (most if most > 0 else 1), ROW * at + 15
        kind = 'fill="#2f7ed8"' if ours else 'fill="#999"'
        bold = ' font-weight="bold"' if ours else ""
        words += f'<text x="{LEFT - 8}" y="{y}" text-anchor="end"{bold}>{escape(name)}</text>'
        words += f'<text x="{LEFT + wide + 6:.0f}" y="{y}"{bold}>{value:.4f}</text>'
        bars += f'<rect x="{LEFT}" y="{y - 12}" width="{wide:.1f}" height="16" {kind}/>'
    size = f'width="{LEFT + BAR + 60}" height="{ROW * len(figures)}"'
    chart = f'<svg {size} role="img" font-size="12" fill="currentColor">{words}{bars}</svg>'
    about = f'<div style="font-size:12px;margin:2px 0 6px">{escape(sizes)}</div>'
    about += f'<div style="font-size:12px">{escape(tested)}</div>{chart}' if figures else ""
    return f'<div style="{BOX};font-family:sans-serif"><b>{escape(title)}</b>{about}</div>'


def _content(result: dict[str, Any], prepared: Prepared) -> tuple[str, str, str, Figures]:
    """Title, sizes, what was measured, and the floor, the method and the ceilings."""
    test = result.get("test") or {}
    ndcg = (name for name in test if name.startswith("ndcg@"))
    metric = next(ndcg, next(iter(test), ""))
    split, ours = prepared.split, _short(result.get("method") or "a method")
    rounds, best = result.get("rounds"), result.get("round")
    when = f", round {best} of {rounds}" if rounds and best else ""  # none for a closed form
    figures: Figures = {}
    for role, group in (
        ("floor", result.get("floor")),
        ("", {ours: test}),
        ("ceiling", result.get("ceiling")),
    ):
        for name, measured in (group or {}).items():
            value = measured.get(metric) if isinstance(measured, dict) else None
            if isinstance(value, float) and math.isfinite(value):
                figures[f"{_short(name)} ({role})" if role else ours] = value, not role
    sizes = f"{split.n_users:,} users, {split.n_items:,} items"
    title = f"{ours} on {_short(prepared.dataset.name)}"
    return title, sizes, f"{_short(metric)} of the test{when}", figures


def _short(name: Any) -> str:
    """A name as one line of printable characters."""
    line = "".join(c if c.isprintable() else " " for c in str(name))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
