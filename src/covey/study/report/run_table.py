"""A result as text of 80 columns: figures, attack, traffic, and what left the device."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from covey.evaluate.exposure import NAMES
from covey.study.render import wording
from covey.study.render.tables import Screen, framed_table
from covey.study.render.units import size

from .data import selecting_first

METRICS_A_TABLE = 4  # more do not fit into 80 columns


def table(result: dict[str, Any], out: Path) -> str:
    screen = Screen()
    metrics = selecting_first(result)
    for at in range(0, len(metrics), METRICS_A_TABLE):
        screen.show(_figures(result, metrics[at : at + METRICS_A_TABLE], titled=at == 0))
    screen.show(*_footnotes(result))
    if result.get("target"):
        screen.show(_exposure(result))
    if result.get("ledger"):
        lines = [wording.evaluation_fields(result["ledger"]), wording.secure_sums(result)]
        lines += wording.privacy_lines(result.get("privacy"))
        screen.show(_ledger(result["ledger"]), *filter(None, lines))
        screen.show(*(wording.told(part, told) for part, told in result.get("told", {}).items()))
        traffic = result["traffic"]
        lost = ", ".join(f"{many} ({why})" for why, many in traffic["dropped"].items())
        up, down = size(traffic["up_bytes"]), size(traffic["down_bytes"])
        screen.show(f"up {up}, down {down}, dropped {lost or 0}")
    screen.show(*(f"warning: {line}" for line in result.get("health", ())))
    screen.whole(f"{result['seconds']:.1f} s, results in {out}")
    return str(screen)


def _figures(result: dict[str, Any], metrics: Sequence[str], titled: bool) -> Table:
    data = result["dataset"]
    title = f"{result['method'] or 'run'} on {data['name']}"
    title += f" ({data['users']:,} users, {data['items']:,} items)"
    title += f", {result['preset']}" if result["preset"] else ""
    out = framed_table(title if titled else "", "test", *metrics)
    when = ""  # a closed form has no rounds
    if result["rounds"]:
        when = f", round {result.get('round', 0)} of {result['rounds']}"
    rows = [
        ("popularity (floor)", result["floor"]["popularity"]),
        (f"{result['method'] or 'this run'}{when}", result["test"]),
        *(
            (f"{wording.reference_name(result, name)} (ceiling)", figures)
            for name, figures in result["ceiling"].items()
        ),
    ]
    for name, figures in rows:
        out.add_row(name, *(f"{figures[m]:.4f}" for m in metrics))
    return out


def _shown(figures: dict[str, Any]) -> dict[str, float]:
    """Return the means over all users, without those of groups of users."""
    return {k: v for k, v in figures.items() if isinstance(v, float) and "/" not in k}


def _footnotes(result: dict[str, Any]) -> list[str]:
    me, test = result["method"] or "this run", _shown(result["test"])
    above = {n: [me] for n, of in result["ceiling"].items() if wording.exceeds(test, of)}
    lines = [wording.lists(result["lists"])] if "lists" in result else []
    lines += wording.above_references(above) + wording.notes(me, test, result)
    attack = wording.attackers(result)
    return lines + ([f"attack: {attack}"] if attack else [])


def _exposure(result: dict[str, Any]) -> Table:
    """Show how far targets were pushed at the selected round and after the last."""
    out = framed_table(f"exposure of {wording.targets(result)}", "target", *NAMES)
    chosen, last = result["round"], result.get("target_last")  # not in results of older versions
    both = last and last["round"] == chosen
    rows = [(f"round {chosen}, selected" + " and last" * bool(both), result["target"])]
    if last and not both:
        rows.append((f"round {last['round']}, the last: used by covey recommend", last))
    for when, figures in rows:
        shown = (wording.exposure(name, figures.get(name, math.nan)) for name in NAMES)
        out.add_row(when, *shown)
    return out


def _ledger(rows: list[dict[str, Any]]) -> Table:
    head = ("exchange", "field", "bytes", "times", "epsilon a user")
    out = framed_table("what left the device", *head, left=2)
    for row in rows:
        if row["step"] != "evaluate":
            total = row["epsilon_user_total"]
            total = "no guarantee" if total == "none" else f"{total:.6g}"
            times = str(row["messages_per_user"])
            out.add_row(row["step"], row["field"], size(row["bytes"]), times, total)
    return out
