"""The section of the page on attacks: how far attackers pushed their targets."""

import math
from typing import Literal

from covey.evaluate.exposure import NAMES, RATIOS
from covey.study.render import wording
from covey.study.render.charts import curves
from covey.study.render.markup import Html, aside, figure, gallery, join, legend, section, tag
from covey.study.render.tables import table
from covey.study.render.units import Stat

from .data import Group, Setting
from .sections import line, named

When = Literal["selected", "last"]  # round
WHEN: tuple[When, ...] = ("selected", "last")
HEADLINE = "er@10"
NOTE = (
    "ER@K is the share of honest users without the target who see it among their best K. The rank"
    " is its mean position for them, 1 at the top. The large dot marks the round selected on"
    " validation; covey recommend uses the model of the last round."
)


def watched(setting: Setting) -> list[Group]:
    return [group for group in setting.groups if group.first.result.get("target")]


def attackers(group: Group) -> int:
    return int(group.first.result.get("attack", {}).get("clients", 0))


def exposed(group: Group, when: When, name: str) -> Stat:
    last = [run.rows[-1] if run.rows else {} for run in group.runs]
    rows = last if when == "last" else [run.result for run in group.runs]
    return Stat.of(float(row.get("target", {}).get(name, math.nan)) for row in rows)


def pushed(group: Group, when: When, name: str) -> str:
    stat = exposed(group, when, name)
    spread = "" if stat.spread is None else f" ± {wording.exposure(name, stat.spread)}"
    return wording.exposure(name, stat.mean) + spread


def targets(setting: Setting) -> str:
    by: dict[str, list[str]] = {}
    for group in watched(setting):
        by.setdefault(wording.targets(group.first.result), []).append(group.name)
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{items} in {', '.join(who)}" for items, who in by.items())


def attacks(setting: Setting) -> list[str]:
    by: dict[str, list[str]] = {}
    for group in setting.groups:
        if attack := wording.attackers(group.first.result):
            by.setdefault(attack, []).append(group.name)
    return [f"{attack}, on {', '.join(who)}" for attack, who in by.items()]


def headline(group: Group) -> Html | None:
    """Describe the attack and its effect; of a run without one, the exposure of its targets."""
    result, attack = group.first.result, wording.attackers(group.first.result)
    parts: list[str] = [tag("b", "Attack"), f": {attack}. "] if attack else []
    seen = exposed(group, "last", HEADLINE)
    if result.get("target") and seen.values:
        parts += ["After the last round, ", tag("b", f"{seen.mean:.1%}"), " of the honest users"]
        best = f"among their best {HEADLINE.removeprefix('er@')}"
        parts += [f" who do not have it see {wording.targets(result)} {best}."]
    return tag("p", *parts, class_="verdict") if parts else None


def exposure(setting: Setting) -> Html | None:
    found = watched(setting)
    if not found:
        return None
    rows: list[list[str]] = []
    for group in found:
        for label, when in _rounds(group).items():
            figures = [pushed(group, when, name) for name in NAMES]
            rows.append([named(setting, group), f"{attackers(group):,}", label, *figures])
    shown = _drawn(setting, found), table(["method", "attackers", "round", *NAMES], rows)
    title = tag("p", f"Target: {targets(setting)}.")
    return section("Exposure of the target", title, *shown, aside(NOTE))


def _rounds(group: Group) -> dict[str, When]:
    last = str(group.first.result["rounds"])
    chosen = ", ".join(dict.fromkeys(str(run.result.get("round", 0)) for run in group.runs))
    if chosen == last:
        return {f"{last}, selected and last": "last"}
    return {f"{chosen}, selected": "selected", f"{last}, last": "last"}


def _drawn(setting: Setting, found: list[Group]) -> Html:
    if len(found) == 1:
        first = found[0]
        lines = [line(first, "target", name, i, name) for i, name in enumerate(RATIOS)]
        pictures = [("ER@K", lines), ("rank", [line(first, "target", "rank", len(RATIOS), "rank")])]
    else:
        colours = {id(group): i for i, group in enumerate(setting.groups)}
        pictures = [
            (name, [line(g, "target", name, colours[id(g)], g.name) for g in found])
            for name in NAMES
        ]
    figures = (figure(what, curves(what, lines, {}, 1.0)) for what, lines in pictures)
    return join(legend((one.name, one.colour) for one in pictures[0][1]), gallery(figures))
