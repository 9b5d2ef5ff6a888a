"""The sections of the page on accuracy and attacks: results, curves, activity, exposed targets."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from covey.evaluate.exposure import NAMES, RATIOS
from covey.study.render import markup, wording
from covey.study.render.charts import Entry, Line, curves, strip
from covey.study.render.markup import Html, aside, figure, gallery, join, legend, section, tag
from covey.study.render.tables import table
from covey.study.render.units import Stat, fixed, grouped, known, size

from .data import Group, Setting, references

LISTS = ("20 best items at the end, of up to 200 users", "distinct lists", "overlap", "coverage")
Thirds = list[tuple[Html, list[Stat]]]
When = Literal["selected", "last"]  # round
WHEN: tuple[When, ...] = ("selected", "last")
HEADLINE = "er@10"


def named(setting: Setting, group: Group) -> Html:
    role = setting.role(group)
    return join(group.name, tag("small", f" {role}") if role else None)


def marks(setting: Setting, metric: str) -> dict[str, float]:
    """Return floors and ceilings of a metric, by the name that is shown."""
    out: dict[str, float] = {}
    for kind in ("floor", "ceiling"):
        found = _of(references(setting.runs, kind), metric)
        short = [name.partition(", ")[0] for name in found]
        for (name, value), who in zip(found.items(), short):
            what = kind if short.count(who) == 1 else name.partition(", ")[2]
            out[f"{who} ({what})"] = value
    return out


def verdict(setting: Setting, group: Group) -> Html:
    """Place the method between floor and ceiling in one sentence."""
    metric = setting.metrics[0]
    stat = group.test(metric)
    parts: list[str] = [tag("b", group.name), f" has {metric} ", tag("b", str(stat))]
    if len(group.runs) > 1:
        parts.append(f" over {len(group.runs)} seeds")
    floor, ceiling = (_of(references(group.runs, kind), metric) for kind in ("floor", "ceiling"))
    for name, value in floor.items():
        where = "above" if stat.mean > value else "below" if stat.mean < value else "at"
        parts.append(f", {where} the floor of {value:.4f} ({name})")
    low = max(floor.values(), default=math.nan)
    for name, value in ceiling.items():
        what = f"{value:.4f} ({name}, which sees all users' data)"
        if wording.exceeds({metric: stat.mean}, {metric: value}):
            parts.append(f"; above {what.removesuffix(')')}: a reference, not a bound)")
        elif stat.mean >= value:
            parts.append(f"; not below {what}")
        elif stat.mean > low:
            share = (stat.mean - low) / (value - low)
            parts.append(f"; {share:.0%} of the way from there to {what}")
    return tag("p", *parts, ".", class_="verdict")


def _of(references: Mapping[str, Mapping[str, float]], metric: str) -> dict[str, float]:
    return known({name: figures.get(metric, math.nan) for name, figures in references.items()})


def cards(setting: Setting, group: Group) -> Html:
    result = group.first.result
    shown = [(metric, str(group.test(metric))) for metric in setting.metrics]
    chosen = ", ".join(dict.fromkeys(str(run.result.get("round", 0)) for run in group.runs))
    if result["rounds"]:
        shown.append(("selected round", f"{chosen} of {result['rounds']}"))
    up, down = group.each("up"), group.each("down")
    if up is not None and down is not None:
        shown.append(("upload per client and round", size(up)))
        shown.append(("download", size(down)))
    boxes = (tag("div", tag("dt", name), tag("dd", value)) for name, value in shown)
    return tag("dl", *boxes, class_="cards")


def results(setting: Setting) -> Html:
    several = any(len(g.runs) > 1 for g in setting.groups)
    bars = "Large dots are means, small ones single seeds, and bars one standard deviation. "
    pictures = []
    for metric in setting.metrics:
        rows = [Entry(g.name, g.test(metric), i) for i, g in enumerate(setting.groups)]
        pictures.append(figure(metric, strip(metric, rows, marks(setting, metric))))
    about, chosen = f"{setting.title}: {setting.protocol}.", "The round is selected on validation"
    head, lines = ["method", *setting.metrics, "seeds"], _references(setting, "floor", " floor")
    for group in setting.groups:
        figures = [str(group.test(metric)) for metric in setting.metrics]
        lines.append([named(setting, group), *figures, str(len(group.runs))])
    lines += _references(setting, "ceiling", " ceiling, pooled data")
    tables = [tag("p", about), gallery(pictures), table(head, lines)]
    if personal := [[named(setting, g), *shown] for g, shown in lists(setting)]:
        tables.append(table(LISTS, personal))
    notes = [aside(f"{line}.") for line in closing(setting)]
    last = aside(bars if several else "", f"{chosen}, never on the test.")
    return section("Results on the test", *tables, *notes, last)


def closing(setting: Setting) -> list[str]:
    """Comment on floor and ceilings, and on methods that give all users one list."""
    above: dict[str, list[str]] = {}
    lines: list[str] = []
    for group in setting.groups:
        figures = {metric: group.test(metric).mean for metric in setting.metrics}
        for reference, of in references(group.runs, "ceiling").items():
            if wording.exceeds(figures, of):
                above.setdefault(reference, []).append(group.name)
        lines += wording.notes(group.name, figures, group.first.result)
    return wording.above_references(above) + list(dict.fromkeys(lines))


def lists(setting: Setting) -> list[tuple[Group, list[str]]]:
    """Return how personal the lists of each method are: distinct ones, overlap, coverage."""
    found = [group for group in setting.groups if group.lists("users").mean > 0]
    shapes = {"distinct": ".0f", "overlap": ".2f", "coverage": ".1%"}
    return [(g, [format(g.lists(k).mean, shape) for k, shape in shapes.items()]) for g in found]


def _references(setting: Setting, kind: str, role: str) -> list[list[str]]:
    return [
        [join(name, tag("small", role)), *(fixed(of.get(m)) for m in setting.metrics), ""]
        for name, of in setting.others(kind).items()
    ]


def learning(setting: Setting) -> Html | None:
    """Draw metrics over the rounds: on validation and test for one method, on test for several."""
    trained = [(i, g) for i, g in enumerate(setting.groups) if any(run.rows for run in g.runs)]
    if not trained:
        return None
    alone = len(setting.groups) == 1
    figures, keys = [], dict[str, int]()
    for metric in setting.metrics:
        lines = [line(g, "test", metric, i, "test" if alone else g.name) for i, g in trained]
        if alone:
            lines.insert(0, line(trained[0][1], "valid", metric, 1, "validation"))
        lines = [one for one in lines if one.points]
        keys |= {one.name: one.colour for one in lines}
        if lines:
            caption = join(metric, "" if alone else " on the test set")
            figures.append(figure(caption, curves(metric, lines, marks(setting, metric))))
    several = any(len(g.runs) > 1 for g in setting.groups)
    seeds = " (of the first seed); bands span the lowest and highest seed" if several else ""
    dots = f"The large dot marks the round selected on validation{seeds}."
    note = aside(dots, " Dashed lines are floor and ceiling on the test set.")
    return section("Learning curves", legend(keys.items()), gallery(figures), note)


def line(group: Group, part: str, metric: str, colour: int, name: str) -> Line:
    return Line(name, group.curve(part, metric), group.first.result.get("round"), colour)


def activity(setting: Setting) -> Html | None:
    parts = setting.activities
    if not parts:
        return None
    tables = (figure(metric, _by_part(setting, metric, parts)) for metric in setting.metrics)
    note = "Users in thirds by their number of training interactions: light, medium, heavy."
    return section("By activity of the users", tag("p", note), *tables)


def _by_part(setting: Setting, metric: str, parts: Sequence[str]) -> Html:
    stats = _thirds(setting, metric, parts, "floor")
    for group in setting.groups:
        mine = [group.test(f"{metric}/{part}") for part in parts]
        stats.append((named(setting, group), mine))
    stats += _thirds(setting, metric, parts, "ceiling")
    every = (value for _, mine in stats for stat in mine for value in stat.values)
    top = max(every, default=0.0) or 1.0
    rows = [[n, *(join(str(stat), markup.bar(stat.mean / top)) for stat in of)] for n, of in stats]
    return table(["method", *parts], rows)


def _thirds(setting: Setting, metric: str, parts: Sequence[str], kind: str) -> Thirds:
    out = []
    for name, of in setting.others(kind).items():
        stats = [Stat.of([of.get(f"{metric}/{part}", math.nan)]) for part in parts]
        out.append((join(name, tag("small", f" {kind}")), stats))
    return out


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
    by = grouped((wording.targets(g.first.result), g.name) for g in watched(setting))
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{items} in {', '.join(who)}" for items, who in by.items())


def attacks(setting: Setting) -> list[str]:
    by = grouped((wording.attackers(g.first.result), g.name) for g in setting.groups)
    return [f"{attack}, on {', '.join(who)}" for attack, who in by.items() if attack]


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
        last = str(group.first.result["rounds"])
        chosen = ", ".join(dict.fromkeys(str(run.result.get("round", 0)) for run in group.runs))
        rounds: dict[str, When] = {f"{chosen}, selected": "selected", f"{last}, last": "last"}
        if chosen == last:
            rounds = {f"{last}, selected and last": "last"}
        for label, when in rounds.items():
            figures = [pushed(group, when, name) for name in NAMES]
            rows.append([named(setting, group), f"{attackers(group):,}", label, *figures])
    shown = _drawn(setting, found), table(["method", "attackers", "round", *NAMES], rows)
    title = tag("p", f"Target: {targets(setting)}.")
    return section("Exposure of the target", title, *shown, aside(wording.note("exposure")))


def _drawn(setting: Setting, found: list[Group]) -> Html:
    if len(found) == 1:
        first = found[0]
        lines = [line(first, "target", name, i, name) for i, name in enumerate(RATIOS)]
        pictures = [("ER@K", lines), ("rank", [line(first, "target", "rank", len(RATIOS), "rank")])]
    else:
        at = {id(group): i for i, group in enumerate(setting.groups)}
        pictures = [(n, [line(g, "target", n, at[id(g)], g.name) for g in found]) for n in NAMES]
    figures = (figure(what, curves(what, lines, {}, 1.0)) for what, lines in pictures)
    return join(legend((one.name, one.colour) for one in pictures[0][1]), gallery(figures))
