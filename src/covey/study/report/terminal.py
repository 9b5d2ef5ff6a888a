"""A run, and runs side by side, as text of 80 columns; the latter also as plain data."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from covey.evaluate.exposure import NAMES
from covey.study.render import wording
from covey.study.render.tables import Screen, framed_table, open_table
from covey.study.render.units import brief, fixed, known, size

from . import sections
from .costs import guarantee
from .data import Group, Setting, references, selecting_first
from .sections import LISTS, WHEN, When, attackers, exposed, lists, pushed, watched

METRICS_A_TABLE = 4  # more do not fit into 80 columns
WITH_COSTS, WITHOUT = 2, 4  # metrics of a table in 80 columns
ROLES = {"": "", "floor": " (floor)", "pooled data": ", pooled"}  # any other is a ceiling


def tables(settings: Sequence[Setting]) -> str:
    screen = Screen()
    for setting in settings:
        screen.show(setting.title)
        screen.show(_table(setting, setting.metrics[:WITH_COSTS], costs=True))
        for at in range(WITH_COSTS, len(setting.metrics), WITHOUT):
            screen.show(_table(setting, setting.metrics[at : at + WITHOUT], costs=False))
        if personal := lists(setting):
            rows = ((group.name, *shown) for group, shown in personal)
            screen.show(open_table(LISTS[0], *LISTS[1:], rows=rows))
        screen.show(*sections.closing(setting))
        if watched(setting):
            screen.show(*(_exposure(setting, when) for when in WHEN))
            screen.show(f"target: {sections.targets(setting)}")
        screen.show(*(f"attack: {attack}" for attack in sections.attacks(setting)))
    if len(settings) > 1:
        differ = "Data, split or evaluation differ between the tables"
        screen.show(f"{differ}: do not compare across them.")
    return str(screen)


def _table(setting: Setting, metrics: Sequence[str], costs: bool) -> Table:
    out = open_table("test", *metrics, *(("runs", "up", "down", "s") if costs else ()))
    for name, figures in setting.others("floor").items():
        out.add_row(f"{name} (floor)", *(fixed(figures.get(m)) for m in metrics))
    for group in setting.groups:
        name = group.name + ROLES.get(setting.role(group), ", train (ceiling)")
        stats = (brief(group.test(metric)) for metric in metrics)
        sent = (size(group.traffic(way)) for way in ("up", "down"))
        paid = str(len(group.runs)), *sent, f"{group.seconds:.3g}"
        out.add_row(name, *stats, *(paid if costs else ()))
    for name, figures in setting.others("ceiling").items():
        out.add_row(f"{name} (ceiling)", *(fixed(figures.get(m)) for m in metrics))
    return out


def _exposure(setting: Setting, when: When) -> Table:
    what = {"selected": "target, selected round", "last": "target, last round (in use)"}
    rows = []
    for group in watched(setting):
        figures = (pushed(group, when, name).replace(" ± ", "±") for name in NAMES)
        rows.append((group.name, f"{attackers(group):,}", *figures))
    return open_table(what[when], "attackers", *NAMES, rows=rows)


def plain(setting: Setting) -> dict[str, Any]:
    out = {"dataset": setting.runs[0].result["dataset"], "protocol": setting.protocol}
    for kind in ("floor", "ceiling"):
        out[kind] = {name: known(of) for name, of in references(setting.runs, kind).items()}
    return out | {"rows": [_row(setting, group) for group in setting.groups]}


def _row(setting: Setting, group: Group) -> dict[str, Any]:
    target = None
    if group in watched(setting):
        target = {when: {n: exposed(group, when, n).plain() for n in NAMES} for when in WHEN}
    out: dict[str, Any] = {"method": group.name, "preset": group.first.result.get("preset", "")}
    out |= {"pooled": group.pooled, "runs": [str(run.folder) for run in group.runs]}
    out |= {"seeds": [run.seed for run in group.runs]}
    out |= {"test": {metric: group.test(metric).plain() for metric in setting.metrics}}
    out |= {f"{way}_bytes": group.traffic(way) for way in ("up", "down")}
    out |= {"lists": {k: group.lists(k).plain() for k in ("distinct", "overlap", "coverage")}}
    out |= {"seconds": group.seconds, "round_seconds": group.round_seconds}
    return out | {"guarantee": guarantee(group), "attackers": attackers(group), "target": target}


def table(result: dict[str, Any], out: Path) -> str:
    screen = Screen()
    metrics = selecting_first(result)
    for at in range(0, len(metrics), METRICS_A_TABLE):
        screen.show(_measured(result, metrics[at : at + METRICS_A_TABLE], titled=at == 0))
    me = result["method"] or "this run"  # means over all users, not over groups of them:
    test = {k: v for k, v in result["test"].items() if isinstance(v, float) and "/" not in k}
    above = {n: [me] for n, of in result["ceiling"].items() if wording.exceeds(test, of)}
    lines = [wording.lists(result["lists"])] if "lists" in result else []
    lines += wording.above_references(above) + wording.notes(me, test, result)
    attack = wording.attackers(result)
    screen.show(*lines, *([f"attack: {attack}"] if attack else []))
    if result.get("target"):
        screen.show(_pushed(result))
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


def _measured(result: dict[str, Any], metrics: Sequence[str], titled: bool) -> Table:
    data = result["dataset"]
    title = f"{result['method'] or 'run'} on {data['name']}"
    title += f" ({data['users']:,} users, {data['items']:,} items)"
    title += f", {result['preset']}" if result["preset"] else ""
    out = framed_table(title if titled else "", "test", *metrics)
    when = ""  # a closed form has no rounds
    if result["rounds"]:
        when = f", round {result.get('round', 0)} of {result['rounds']}"
    rows = [("popularity (floor)", result["floor"]["popularity"])]
    rows += [(f"{result['method'] or 'this run'}{when}", result["test"])]
    for name, figures in result["ceiling"].items():
        rows.append((f"{wording.reference_name(result, name)} (ceiling)", figures))
    for name, figures in rows:
        out.add_row(name, *(f"{figures[m]:.4f}" for m in metrics))
    return out


def _pushed(result: dict[str, Any]) -> Table:
    out = framed_table(f"exposure of {wording.targets(result)}", "target", *NAMES)
    chosen, last = result["round"], result.get("target_last")  # not in results of older versions
    both = last and last["round"] == chosen
    rows = [(f"round {chosen}, selected" + " and last" * bool(both), result["target"])]
    if last and not both:
        rows.append((f"round {last['round']}, the last: used by covey recommend", last))
    for when, figures in rows:
        out.add_row(when, *(wording.exposure(name, figures.get(name, math.nan)) for name in NAMES))
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
