"""The section of the page on costs: how long the runs took, and what they sent."""

from collections.abc import Mapping, Sequence

from covey.study.render.charts import Line, powers, spent
from covey.study.render.markup import Child, Html, join, tag
from covey.study.render.page_shell import aside, figure, gallery, legend, section
from covey.study.render.svg import Frame, colour, dot, ticks
from covey.study.render.tables import table
from covey.study.render.units import NOTHING, Point, fixed, known, points, seconds, size, tick

from .data import Group, Setting
from .sections import marks, named

PER_ROUND = {
    "seconds": "seconds per round",
    "up_bytes": "upload per round",
    "down_bytes": "download per round",
}


def cost(setting: Setting) -> Html:
    """Show time and traffic per round, per run, and per client and round."""
    head = ["method", "rounds", "seconds", "seconds per round", "up", "down"]
    head += ["up, per client and round", "down"]
    rows: list[list[Child]] = []
    for group in setting.groups:
        many, each = group.first.result["rounds"], group.round_seconds
        sent = [group.traffic("up"), group.traffic("down"), group.each("up"), group.each("down")]
        lasts = NOTHING if each is None else f"{each:.3g}"
        times = [many or NOTHING, f"{group.seconds:.1f}", lasts]
        rows.append([named(setting, group), *times, *map(size, sent)])
    results = [group.first.result.get("traffic", {}) for group in setting.groups]
    lost = sorted({why for traffic in results for why in traffic.get("dropped", {})})
    return section(
        "Time and traffic",
        _rounds(setting),
        _prices(setting),
        table(head, rows),
        tag("p", f"Messages were dropped for these reasons: {', '.join(lost)}.") if lost else None,
        aside(
            "Seconds are those of the whole command: data, training, evaluation, floor and ceiling."
            " Seconds per round are training alone. Traffic is what the method sends, without the"
            " metrics that clients send for evaluation."
        ),
    )


def _rounds(setting: Setting) -> Html | None:
    """Draw costs over the rounds, if the runs recorded them."""
    found = [(i, g) for i, g in enumerate(setting.groups) if per_round(g, "seconds")]
    if not found:
        return None
    figures = []
    for key, caption in PER_ROUND.items():
        lines = [Line(g.name, per_round(g, key), colour=i) for i, g in found]
        drawn = spent(caption, lines, seconds if key == "seconds" else size)
        figures.append(figure(caption, drawn))
    starts = "; ".join(f"{g.name}: {sent}" for _, g in found if (sent := _enrolment(g)))
    return join(
        legend((g.name, i) for i, g in found) if len(found) > 1 else None,
        gallery(figures, "three"),
        aside(f"Enrolment, before the first round, sends {starts}.") if starts else None,
    )


def _enrolment(group: Group) -> str:
    row = group.first.spent[0]
    ways = [f"{size(row[f'{way}_bytes'])} {way}" for way in ("up", "down") if row[f"{way}_bytes"]]
    return " and ".join(ways)


def per_round(group: Group, key: str) -> list[Point]:
    """Return a figure of each round that all seeds ran."""
    rows = (row for run in group.runs for row in run.spent if row["round"])
    return points(((row["round"], row[key]) for row in rows), len(group.runs))


Price = tuple[str, float, float, int]  # method, bytes, figure, colour


def _prices(setting: Setting) -> Html | None:
    """Draw metrics against upload if at least two methods upload anything."""
    senders = [(g, g.each("up"), i) for i, g in enumerate(setting.groups)]
    found = [(g, up, i) for g, up, i in senders if up]
    if len(found) < 2:
        return None
    figures = []
    for metric in setting.metrics[:2]:
        stats = ((g.name, up, g.test(metric), i) for g, up, i in found)
        rows = [(name, up, stat.mean, i) for name, up, stat, i in stats if stat.values]
        drawn = price(metric, rows, marks(setting, metric)) if rows else None
        figures.append(figure(f"{metric} against upload", drawn))
    return join(legend((g.name, i) for g, _, i in found), gallery(figures))


def price(metric: str, rows: Sequence[Price], marks: Mapping[str, float]) -> Html:
    """Draw a metric against the upload of a client in a round, on a logarithmic axis."""
    frame, sent = Frame(), [bytes_ for _, bytes_, _, _ in rows]
    top = max([*(value for _, _, value, _ in rows), *known(marks).values(), 1e-9]) * 1.08
    levels = powers(min(sent), max(sent))
    x, y = frame.across(levels[0], levels[-1], log=True), frame.up(0, top)
    parts = [frame.rows(y, ticks(top), tick), frame.numbers(x, levels, size)]
    parts += [frame.below("upload of a client per round"), frame.marks(y, marks)]
    for name, bytes_, value, number in rows:
        tooltip = f"{name}: {fixed(value)}, {size(bytes_)}"
        parts.append(dot(x(bytes_), y(value), 6, f"dot {colour(number)}", tooltip))
    return frame.picture(f"{metric} against upload", *parts)
