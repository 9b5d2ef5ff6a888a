"""Runs side by side as text of 80 columns, and as plain data."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from covey.evaluate.exposure import NAMES
from covey.study.render.tables import Screen, open_table
from covey.study.render.units import brief, fixed, known, size

from .attacked import WHEN, When, attackers, attacks, exposed, pushed, targets, watched
from .data import Group, Setting
from .disclosure import guarantee
from .sections import LISTS, closing, lists

WITH_COSTS, WITHOUT = 2, 4  # metrics of a table in 80 columns
ROLES = {"": "", "floor": " (floor)", "pooled data": ", pooled"}  # any other is a ceiling


def tables(settings: Sequence[Setting]) -> str:
    screen = Screen()
    for setting in settings:
        screen.show(setting.title)
        screen.show(_table(setting, setting.metrics[:WITH_COSTS], costs=True))
        for at in range(WITH_COSTS, len(setting.metrics), WITHOUT):
            screen.show(_table(setting, setting.metrics[at : at + WITHOUT], costs=False))
        screen.show(*_personal(setting))
        screen.show(*closing(setting))
        if watched(setting):
            screen.show(*(_exposure(setting, when) for when in WHEN))
            screen.show(f"target: {targets(setting)}")
        screen.show(*(f"attack: {attack}" for attack in attacks(setting)))
    if len(settings) > 1:
        screen.show(
            "Data, split or evaluation differ between the tables: do not compare across them."
        )
    return str(screen)


def _table(setting: Setting, metrics: Sequence[str], costs: bool) -> Table:
    out = open_table("test", *metrics, *(("runs", "up", "down", "s") if costs else ()))
    for name, figures in setting.others("floor").items():
        out.add_row(f"{name} (floor)", *(fixed(figures.get(m)) for m in metrics))
    for group in setting.groups:
        name = group.name + ROLES.get(setting.role(group), ", train (ceiling)")
        stats = (brief(group.test(metric)) for metric in metrics)
        out.add_row(name, *stats, *(_costs(group) if costs else ()))
    for name, figures in setting.others("ceiling").items():
        out.add_row(f"{name} (ceiling)", *(fixed(figures.get(m)) for m in metrics))
    return out


def _personal(setting: Setting) -> list[Table]:
    """Show how much the lists of several users differ, before known items are removed."""
    out, rows = open_table(LISTS[0], *LISTS[1:]), lists(setting)
    for group, shown in rows:
        out.add_row(group.name, *shown)
    return [out] * bool(rows)


def _exposure(setting: Setting, when: When) -> Table:
    """Show how far targets were pushed, with the number of attackers."""
    what = {"selected": "target, selected round", "last": "target, last round (in use)"}
    out = open_table(what[when], "attackers", *NAMES)
    for group in watched(setting):
        figures = (pushed(group, when, name).replace(" ± ", "±") for name in NAMES)
        out.add_row(group.name, f"{attackers(group):,}", *figures)
    return out


def _costs(group: Group) -> tuple[str, ...]:
    up, down = size(group.traffic("up")), size(group.traffic("down"))
    return str(len(group.runs)), up, down, f"{group.seconds:.3g}"


def plain(setting: Setting) -> dict[str, Any]:
    """Return the content of the tables as plain data."""
    data = setting.runs[0].result["dataset"]
    references = (setting.references(kind).items() for kind in ("floor", "ceiling"))
    floor, ceiling = ({name: known(figures) for name, figures in of} for of in references)
    return {
        "dataset": data,
        "protocol": setting.protocol,
        "floor": floor,
        "ceiling": ceiling,
        "rows": [_row(setting, group) for group in setting.groups],
    }


def _row(setting: Setting, group: Group) -> dict[str, Any]:
    target = None
    if group in watched(setting):
        target = {when: {n: exposed(group, when, n).plain() for n in NAMES} for when in WHEN}
    return {
        "method": group.name,
        "preset": group.first.result.get("preset", ""),
        "pooled": group.pooled,
        "runs": [str(run.folder) for run in group.runs],
        "seeds": [run.seed for run in group.runs],
        "test": {metric: group.test(metric).plain() for metric in setting.metrics},
        "up_bytes": group.traffic("up"),
        "down_bytes": group.traffic("down"),
        "lists": {name: group.lists(name).plain() for name in ("distinct", "overlap", "coverage")},
        "seconds": group.seconds,
        "round_seconds": group.round_seconds,
        "guarantee": guarantee(group),
        "attackers": attackers(group),
        "target": target,
    }
