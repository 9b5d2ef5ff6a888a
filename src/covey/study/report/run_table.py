"""A result in a terminal of 80 columns: figures with floor and ceiling, attack, traffic, what left the device."""

import math
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from covey.evaluate.exposure import NAMES
from covey.study.render import wording


def table(result: dict[str, Any], out: Path) -> str:
    text = StringIO()
    console = Console(file=text, width=80, markup=False, emoji=False, highlight=False)  # names stand as they are
    console.print(_figures(result))
    for line in _footnotes(result):
        console.print(line)
    if result.get("target"):
        console.print(_exposure(result))
    if result.get("ledger"):
        console.print(_ledger(result["ledger"]))
        for line in (wording.study(result["ledger"]), wording.sums(result), *owed(result.get("privacy"))):
            if line:
                console.print(line)
        for part, said in result.get("told", {}).items():  # such as the sensitivity that noise was chosen by
            console.print(f"{part}: " + ", ".join(f"{name} {value:.4g}" for name, value in said.items()))
        traffic = result["traffic"]
        lost = ", ".join(f"{many} ({why})" for why, many in traffic["dropped"].items())
        console.print(f"up {size(traffic['up_bytes'])}, down {size(traffic['down_bytes'])}, dropped {lost or 0}")
    console.print(f"{result['seconds']:.1f} s, results in {out}", soft_wrap=True)  # a path in one piece
    return text.getvalue().rstrip()


def _figures(result: dict[str, Any]) -> Table:
    metrics = list(_shown(result["test"]))
    data = result["dataset"]
    title = f"{result['method'] or 'run'} on {data['name']} ({data['users']:,} users, {data['items']:,} items)"
    out = Table(title=title + (f", {result['preset']}" if result["preset"] else ""))
    out.add_column("test")
    for metric in metrics:
        out.add_column(metric, justify="right")
    when = f", round {result.get('round', 0)} of {result['rounds']}" if result["rounds"] else ""  # else a closed form
    rows = [
        ("popularity (floor)", result["floor"]["popularity"]),
        (f"{result['method'] or 'this run'}{when}", result["test"]),
        *((f"{name}, pooled (ceiling)", figures) for name, figures in result["ceiling"].items()),
    ]
    for name, figures in rows:
        out.add_row(name, *(f"{figures[m]:.4f}" for m in metrics))
    return out


def _shown(figures: dict[str, Any]) -> dict[str, float]:
    """Means over everybody, without those of parts of the users."""
    return {k: v for k, v in figures.items() if isinstance(v, float) and "/" not in k}


def _footnotes(result: dict[str, Any]) -> list[str]:
    me = (result["method"] or "this run", bool(result.get("sees_validation")))
    above = {name: [me] for name, mine in result["ceiling"].items() if wording.over(_shown(result["test"]), mine)}
    attack = wording.attackers(result)
    return wording.no_bound(above) + ([f"attack: {attack}"] if attack else [])


def _exposure(result: dict[str, Any]) -> Table:
    """How far targets were pushed at the round that the figures are of, and in the end."""
    out = Table(title=f"exposure of {wording.targets(result)}")
    out.add_column("target")
    for name in NAMES:
        out.add_column(name, justify="right")
    chosen, last = result["round"], result.get("target_last")  # not in results of older versions
    rows = [(f"round {chosen}, selected" + (" and last" if last and last["round"] == chosen else ""), result["target"])]
    if last and last["round"] != chosen:
        rows.append((f"round {last['round']}, the last: what recommend serves", last))
    for when, figures in rows:
        out.add_row(when, *(wording.exposure(name, figures.get(name, math.nan)) for name in NAMES))
    return out


def _ledger(rows: list[dict[str, Any]]) -> Table:
    out = Table(title="what left the device")
    for name in ("exchange", "field", "bytes", "times", "epsilon a user"):
        out.add_column(name, justify="left" if name in ("exchange", "field") else "right")
    for row in rows:
        if row["step"] != "evaluate":
            total = row["epsilon_user_total"]
            total = "no guarantee" if total == "none" else f"{total:.6g}"
            out.add_row(row["step"], row["field"], size(row["bytes"]), str(row["messages_per_user"]), total)
    return out


def owed(privacy: dict[str, Any] | None) -> list[str]:
    """What a user spends in a run, and what nothing protects, in words; results of older versions say nothing."""
    if privacy is None:
        return []
    open_, total, better = privacy["unprotected"], privacy["epsilon_user"], privacy["accountant"]
    lines = []
    if total:
        parts = {"an item": "epsilon_item", "enrolment": "epsilon_enrolment", "a report": "epsilon_report"}
        parts |= {"a round": "epsilon_round"}
        each = ", ".join(f"{name} {privacy[key]:.4g}" for name, key in parts.items() if privacy[key])
        slack = f", delta {privacy['delta_user']:.3g}" if privacy["delta_user"] else ""
        lines.append(f"epsilon: {each}; a user in total {total:.6g}{slack} (basic composition)")
    if better:
        lines.append(f"  at delta {better['delta']:g} a user in total {better['epsilon']:.6g} ({better['by']})")
    if privacy.get("noise") == "simulated":
        lines.append(wording.SIMULATED)
    if needs := privacy.get("needs_secure"):
        lines.append(f"in a secure sum {needs[0]} has a guarantee: set fleet.secure = true")
    if open_:
        more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        lines.append(f"without any guarantee: {open_[0]}{more}; a user has none in total")
    return lines


def size(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 999.5:  # what rounds to 1,000 has the next unit
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} TB"
