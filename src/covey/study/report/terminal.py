"""Runs side by side in a terminal of 80 columns, and as plain data."""

import math
from collections.abc import Sequence
from io import StringIO
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from covey.evaluate.exposure import NAMES
from covey.study.render import wording

from .attacked import WHEN, When, attackers, attacks, exposed, pushed, targets, watched
from .data import Group, Setting, Stat, known, said
from .disclosure import guarantee
from .run_table import size
from .sections import above

METRICS_A_TABLE = 2  # more do not fit


def tables(settings: Sequence[Setting]) -> str:
    text = StringIO()
    console = Console(file=text, width=80, markup=False, emoji=False, highlight=False)  # names stand as they are
    for setting in settings:
        console.print(setting.title)
        metrics = setting.metrics
        for at in range(0, len(metrics), METRICS_A_TABLE):
            console.print(_table(setting, metrics[at : at + METRICS_A_TABLE], costs=at == 0))
        for line in wording.no_bound(above(setting)):
            console.print(line)
        if watched(setting):
            for when in WHEN:
                console.print(_exposure(setting, when))
            console.print(f"target: {targets(setting)}")
        for attack in attacks(setting):
            console.print(f"attack: {attack}")
    if len(settings) > 1:
        console.print("Data, split or measure differ between the tables: do not compare across them.")
    return text.getvalue().rstrip()


def _table(setting: Setting, metrics: Sequence[str], costs: bool) -> Table:
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    out.add_column("test", overflow="fold")
    for metric in metrics:
        out.add_column(metric, justify="right", no_wrap=True)
    for name in ("runs", "up", "down", "s") if costs else ():
        out.add_column(name, justify="right", no_wrap=True)
    own = {group.first.label for group in setting.groups}
    for name, figures in setting.references("floor").items():
        if name not in own:
            out.add_row(f"{name} (floor)", *(said(figures.get(m, math.nan)) for m in metrics))
    for group in setting.groups:
        stats = (_short(group.test(metric)) for metric in metrics)
        role = {"": "", "floor": " (floor)", "pooled data": ", pooled"}.get(setting.role(group), " (ceiling)")
        out.add_row(group.name + role, *stats, *(_costs(group) if costs else ()))
    for name, figures in setting.references("ceiling").items():
        if name not in own:
            out.add_row(f"{name} (ceiling)", *(said(figures.get(m, math.nan)) for m in metrics))
    return out


def _exposure(setting: Setting, when: When) -> Table:
    """How far targets were pushed; clients that attack, and who sees a target among the best."""
    what = {"selected": "target, selected round", "last": "target, last round (served)"}
    out = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    out.add_column(what[when], overflow="fold")
    for name in ("attackers", *NAMES):
        out.add_column(name, justify="right", no_wrap=True)
    for group in watched(setting):
        out.add_row(group.name, f"{attackers(group):,}", *(pushed(group, when, n).replace(" ± ", "±") for n in NAMES))
    return out


def _short(stat: Stat) -> str:
    """0.1430±.0021"""
    return str(stat).replace(" ± 0.", "±.").replace(" ± ", "±")


def _costs(group: Group) -> tuple[str, ...]:
    up, down = (("–" if n is None else size(n)) for n in (group.traffic("up"), group.traffic("down")))
    return str(len(group.runs)), up, down, f"{group.seconds:.3g}"


def plain(setting: Setting) -> dict[str, Any]:
    """What the tables say, for other programs."""
    data = setting.runs[0].result["dataset"]
    return {
        "dataset": data,
        "protocol": setting.protocol,
        "floor": {name: known(figures) for name, figures in setting.references("floor").items()},
        "ceiling": {name: known(figures) for name, figures in setting.references("ceiling").items()},
        "rows": [_row(setting, group) for group in setting.groups],
    }


def _row(setting: Setting, group: Group) -> dict[str, Any]:
    seen = group in watched(setting)
    return {
        "method": group.name,
        "preset": group.first.result.get("preset", ""),
        "pooled": group.pooled,
        "runs": [str(run.folder) for run in group.runs],
        "seeds": [run.seed for run in group.runs],
        "test": {metric: _stat(group.test(metric)) for metric in setting.metrics},
        "up_bytes": group.traffic("up"),
        "down_bytes": group.traffic("down"),
        "seconds": group.seconds,
        "round_seconds": group.round_seconds,
        "guarantee": guarantee(group),
        "attackers": attackers(group),
        "target": {when: {n: _stat(exposed(group, when, n)) for n in NAMES} for when in WHEN} if seen else None,
    }


def _stat(stat: Stat) -> dict[str, Any]:
    mean = None if math.isnan(stat.mean) else stat.mean
    return {"mean": mean, "spread": stat.spread, "values": list(stat.values)}
