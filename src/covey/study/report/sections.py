"""The parts of the page that tell how well the runs did."""

import math
from collections.abc import Sequence

from covey.study.render import wording
from covey.study.render.markup import Child, Html, join, tag

from .data import Group, Setting, Stat, known, said
from .figures import Line, curves, dots
from .run_table import size


def section(title: str, *parts: Child) -> Html:
    return tag("section", tag("h2", title), *parts)


def table(head: Sequence[str], rows: Sequence[Sequence[Child]], left: int = 1, kind: str | None = None) -> Html:
    """A table that scrolls by itself where the page is narrow; all but the first columns are figures."""
    cells = lambda name, row: (tag(name, cell, class_=None if i < left else "num") for i, cell in enumerate(row))
    return tag(
        "div",
        tag(
            "table",
            tag("thead", tag("tr", *cells("th", head))),
            tag("tbody", *(tag("tr", *cells("td", row)) for row in rows)),
            class_=kind,
        ),
        class_="scroll",
        tabindex=0,  # so that the keyboard can scroll it
    )


def legend(names: Sequence[tuple[str, int]]) -> Html:
    keys = (tag("li", tag("span", class_=f"key c{colour % 8}"), name) for name, colour in names)
    return tag("ul", *keys, class_="legend")


def bar(share: float) -> Html:
    width = 0.0 if math.isnan(share) else min(max(share, 0.0), 1.0)
    return tag("span", class_="bar", style=f"--w:{width:.1%}")


def named(setting: Setting, group: Group) -> Html:
    role = setting.role(group)
    return join(group.name, tag("small", f" {role}") if role else None)


def marks(setting: Setting, metric: str) -> dict[str, float]:
    """Floor and ceilings of a metric, by the words they stand under."""
    out = {}
    for kind in ("floor", "ceiling"):
        for name, figures in setting.references(kind).items():
            out[f"{name} ({kind})"] = figures.get(metric, math.nan)
    return known(out)


def verdict(setting: Setting, group: Group) -> Html:
    """One sentence: where the method stands between floor and ceiling."""
    metric = setting.metrics[0]
    stat = group.test(metric)
    parts: list[Child] = [tag("b", group.name), f" has {metric} ", tag("b", str(stat))]
    if len(group.runs) > 1:
        parts.append(f" over {len(group.runs)} seeds")
    floor, ceiling = (
        known({k: v.get(metric, math.nan) for k, v in setting.references(kind).items()})
        for kind in ("floor", "ceiling")
    )
    for name, value in floor.items():
        where = "above" if stat.mean > value else "below" if stat.mean < value else "at"
        parts.append(f", {where} the floor of {value:.4f} ({name})")
    low = max(floor.values(), default=math.nan)
    for name, value in ceiling.items():
        what = f"{value:.4f} ({name}, which sees everybody's data)"
        if wording.over({metric: stat.mean}, {metric: value}):
            parts.append(f"; above {what.removesuffix(')')}: a reference and no bound)")
        elif stat.mean >= value:
            parts.append(f"; not below {what}")
        elif stat.mean > low:
            parts.append(f"; {(stat.mean - low) / (value - low):.0%} of the way from there to {what}")
    return tag("p", *parts, ".", class_="verdict")


def cards(setting: Setting, group: Group) -> Html:
    """Figures at a glance."""
    result = group.first.result
    shown = [(metric, str(group.test(metric))) for metric in setting.metrics]
    chosen = ", ".join(dict.fromkeys(str(run.result.get("round", 0)) for run in group.runs))
    if result["rounds"]:
        shown.append(("selected round", f"{chosen} of {result['rounds']}"))
    up, down = group.each("up"), group.each("down")
    if up is not None and down is not None:
        shown.append(("a client uploads each round", size(up)))
        shown.append(("and downloads", size(down)))
    boxes = (tag("div", tag("dt", name), tag("dd", value)) for name, value in shown)
    return tag("dl", *boxes, class_="cards")


def results(setting: Setting) -> Html:
    rows = lambda metric: [(g.name, g.test(metric), i) for i, g in enumerate(setting.groups)]
    figures = (tag("figure", tag("figcaption", m), dots(m, rows(m), marks(setting, m))) for m in setting.metrics)
    several = any(len(g.runs) > 1 for g in setting.groups)
    note = "Large dots are means, small ones single seeds, bars one standard deviation. " if several else ""
    return section(
        "Results on the test",
        tag("p", f"{setting.title}: {setting.protocol}."),
        tag("div", *figures, class_="figures-row"),
        _result_table(setting),
        *(tag("p", f"{line}.", class_="aside") for line in wording.no_bound(above(setting))),
        tag("p", note, "The round is selected on the validation part, never on the test.", class_="aside"),
    )


def above(setting: Setting) -> wording.Above:
    """Who is above which ceiling, in any metric."""
    found = {}
    for reference, figures in setting.references("ceiling").items():
        mine = lambda group: {m: group.test(m).mean for m in setting.metrics}
        who = [g for g in setting.groups if wording.over(mine(g), figures)]
        found[reference] = [(g.name, bool(g.first.result.get("sees_validation"))) for g in who]
    return {reference: who for reference, who in found.items() if who}


def _result_table(setting: Setting) -> Html:
    metrics, own = setting.metrics, {g.first.label for g in setting.groups}
    floor, ceiling = setting.references("floor"), setting.references("ceiling")
    figures = lambda of: [said(of.get(m, math.nan)) for m in metrics]
    rows: list[list[Child]] = []
    rows += [[join(n, tag("small", " floor")), *figures(f), ""] for n, f in floor.items() if n not in own]
    for group in setting.groups:
        rows.append([named(setting, group), *(str(group.test(m)) for m in metrics), len(group.runs)])
    rows += [
        [join(n, tag("small", " ceiling, pooled data")), *figures(f), ""] for n, f in ceiling.items() if n not in own
    ]
    return table(["method", *metrics, "seeds"], rows)


def learning(setting: Setting) -> Html | None:
    """Curves of the rounds; both parts for one method, the test for several."""
    trained = [(i, g) for i, g in enumerate(setting.groups) if any(run.rows for run in g.runs)]
    if not trained:
        return None
    alone = len(setting.groups) == 1
    figures, keys = [], dict[str, int]()
    for metric in setting.metrics:
        lines = _both(trained[0][1], metric) if alone else [_line(g, "test", metric, i, g.name) for i, g in trained]
        lines = [line for line in lines if line.points]
        keys |= {line.name: line.colour for line in lines}
        if lines:
            drawn = curves(metric, lines, marks(setting, metric))
            figures.append(tag("figure", tag("figcaption", metric, "" if alone else " on the test"), drawn))
    note = "The large dot is the round selected on validation" + (" (of the first seed)" if _several(setting) else "")
    band = "; bands span the lowest and highest seed" if _several(setting) else ""
    return section(
        "Learning curves",
        legend(list(keys.items())),
        tag("div", *figures, class_="figures-row"),
        tag("p", f"{note}{band}. Dashed: floor and ceiling on the test.", class_="aside"),
    )


def _several(setting: Setting) -> bool:
    return any(len(g.runs) > 1 for g in setting.groups)


def _both(group: Group, metric: str) -> list[Line]:
    parts = (("valid", "validation", 1), ("test", "test", 0))
    return [_line(group, part, metric, colour, name) for part, name, colour in parts]


def _line(group: Group, part: str, metric: str, colour: int, name: str) -> Line:
    return Line(name, group.curve(part, metric), group.first.result.get("round"), colour)


def activity(setting: Setting) -> Html | None:
    """Who is served: users with short, middling and long histories."""
    parts = setting.activities
    if not parts:
        return None
    tables = [tag("figure", tag("figcaption", metric), _by_part(setting, metric, parts)) for metric in setting.metrics]
    note = "Users in thirds by how many interactions they train on: light, medium, heavy."
    return section("By activity of the users", tag("p", note), *tables)


def _by_part(setting: Setting, metric: str, parts: Sequence[str]) -> Html:
    own = {group.first.label for group in setting.groups}
    stats: list[tuple[Html, list[Stat]]] = [
        (named(setting, g), [g.test(f"{metric}/{part}") for part in parts]) for g in setting.groups
    ]
    for kind in ("floor", "ceiling"):
        for name, figures in setting.references(kind).items():
            mine = [Stat.of([figures.get(f"{metric}/{part}", math.nan)]) for part in parts]
            if name not in own:
                stats.insert(0 if kind == "floor" else len(stats), (join(name, tag("small", f" {kind}")), mine))
    top = max((value for _, mine in stats for stat in mine for value in stat.values), default=0.0) or 1.0
    rows = [[name, *(join(str(stat), bar(stat.mean / top)) for stat in mine)] for name, mine in stats]
    return table(["method", *parts], rows)
