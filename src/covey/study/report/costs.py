"""The part of the page that tells how long the runs took and what they sent."""

import statistics

from covey.study.render.markup import Child, Html, join, tag

from .data import Group, Point, Setting
from .figures import Line, price, spent
from .run_table import size
from .sections import legend, marks, named, section, table

PER_ROUND = {"seconds": "seconds of a round", "up_bytes": "sent up in a round", "down_bytes": "sent down in a round"}


def cost(setting: Setting) -> Html:
    """Time and traffic: of every round, of the whole run, of a client in a round."""
    head = ["method", "rounds", "seconds", "a round, s", "up", "down", "a client a round, up", "down"]
    rows: list[list[Child]] = []
    for group in setting.groups:
        many, each = group.first.result["rounds"], group.round_seconds
        sizes = [group.traffic("up"), group.traffic("down"), group.each("up"), group.each("down")]
        lasts = "–" if each is None else f"{each:.3g}"
        rows.append([named(setting, group), many or "–", f"{group.seconds:.1f}", lasts, *(_size(n) for n in sizes)])
    lost = {why for g in setting.groups for why in g.first.result.get("traffic", {}).get("dropped", {})}
    return section(
        "Time and traffic",
        _rounds(setting),
        _prices(setting),
        table(head, rows),
        tag("p", f"Dropped messages: {', '.join(sorted(lost))}.") if lost else None,
        tag(
            "p",
            "Seconds are those of the whole command: data, training, evaluation, floor and ceiling; those of a round",
            " are training alone. Traffic is what the method sends; the measurements of this study are not in it.",
            class_="aside",
        ),
    )


def _rounds(setting: Setting) -> Html | None:
    """Curves over the rounds, where the runs wrote them down."""
    found = [(i, g) for i, g in enumerate(setting.groups) if per_round(g, "seconds")]
    if not found:
        return None
    figures = []
    for key, caption in PER_ROUND.items():
        lines = [Line(g.name, per_round(g, key), colour=i) for i, g in found]
        say = seconds if key == "seconds" else size
        figures.append(tag("figure", tag("figcaption", caption), spent(caption, lines, say)))
    starts = "; ".join(f"{g.name}: {said}" for _, g in found if (said := _enrolment(g)))
    return join(
        legend([(g.name, i) for i, g in found]) if len(found) > 1 else None,
        tag("div", *figures, class_="figures-row"),
        tag("p", f"Before the first round, when clients enrol, {starts}.", class_="aside") if starts else None,
    )


def _enrolment(group: Group) -> str:
    row = group.first.spent[0]
    ways = [f"{size(row[f'{way}_bytes'])} {way}" for way in ("up", "down") if row[f"{way}_bytes"]]
    return " and ".join(ways)


def per_round(group: Group, key: str) -> list[Point]:
    """A figure of each round, over the rounds that all seeds took."""
    tables = [{row["round"]: float(row[key]) for row in run.spent if row["round"]} for run in group.runs]
    shared = sorted(set.intersection(*(set(t) for t in tables)))
    return [Point(r, statistics.fmean(v), min(v), max(v)) for r in shared for v in [[t[r] for t in tables]]]


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"


def _prices(setting: Setting) -> Html | None:
    """Only where there is something to weigh: two methods that send something."""
    senders = [(g, g.each("up"), i) for i, g in enumerate(setting.groups)]
    found = [(g, up, i) for g, up, i in senders if up]
    if len(found) < 2:
        return None
    figures = []
    for m in setting.metrics[:2]:
        rows = [(g.name, up, g.test(m).mean, i) for g, up, i in found if g.test(m).values]
        drawn = price(m, rows, marks(setting, m)) if rows else None
        figures.append(tag("figure", tag("figcaption", m, " against upload"), drawn))
    return join(legend([(g.name, i) for g, _, i in found]), tag("div", *figures, class_="figures-row"))


def _size(n: float | None) -> str:
    return "–" if n is None else size(n)
