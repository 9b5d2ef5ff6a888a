"""The sections of the page on costs and on privacy: time, traffic, and what left the device."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.study.render import markup, wording
from covey.study.render.charts import Line, powers, spent
from covey.study.render.markup import Html, aside, figure, folded, gallery, join, section, tag
from covey.study.render.svg import Frame, colour, dot, ticks
from covey.study.render.tables import table
from covey.study.render.units import NOTHING, Point, fixed, known, many, points, seconds, size, tick

from .data import Group, Setting
from .sections import marks, named

PER_ROUND = {"seconds": "seconds", "up_bytes": "upload", "down_bytes": "download"}  # per round
Price = tuple[str, float, float, int]  # method, bytes, figure, colour


def cost(setting: Setting) -> Html:
    head = ["method", "rounds", "seconds", "seconds per round", "up", "down"]
    head += ["up, per client and round", "down"]
    rows: list[list[str]] = []
    for group in setting.groups:
        rounds, each = group.first.result["rounds"], group.round_seconds
        sent = [group.traffic("up"), group.traffic("down"), group.each("up"), group.each("down")]
        lasts = NOTHING if each is None else f"{each:.3g}"
        times = [rounds or NOTHING, f"{group.seconds:.1f}", lasts]
        rows.append([named(setting, group), *times, *map(size, sent)])
    results = [group.first.result.get("traffic", {}) for group in setting.groups]
    lost = sorted({why for traffic in results for why in traffic.get("dropped", {})})
    why = tag("p", f"Messages were dropped for these reasons: {', '.join(lost)}.") if lost else None
    drawn = _rounds(setting), _prices(setting), table(head, rows)
    return section("Time and traffic", *drawn, why, aside(wording.note("cost")))


def _rounds(setting: Setting) -> Html | None:
    """Draw costs over the rounds, if the runs recorded them."""
    found = [(i, g) for i, g in enumerate(setting.groups) if per_round(g, "seconds")]
    if not found:
        return None
    figures = []
    for key, what in PER_ROUND.items():
        caption = f"{what} per round"
        lines = [Line(g.name, per_round(g, key), colour=i) for i, g in found]
        drawn = spent(caption, lines, seconds if key == "seconds" else size)
        figures.append(figure(caption, drawn))
    starts = []
    for _, group in found:
        sent = {way: group.first.spent[0][f"{way}_bytes"] for way in ("up", "down")}
        if any(sent.values()):
            ways = (f"{size(bytes_)} {way}" for way, bytes_ in sent.items() if bytes_)
            starts.append(f"{group.name}: {' and '.join(ways)}")
    return join(
        markup.legend((g.name, i) for i, g in found) if len(found) > 1 else None,
        gallery(figures, "three"),
        aside(f"Enrolment, before the first round, sends {'; '.join(starts)}.") if starts else None,
    )


def per_round(group: Group, key: str) -> list[Point]:
    rows = (row for run in group.runs for row in run.spent if row["round"])
    return points(((row["round"], row[key]) for row in rows), len(group.runs))


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
    return join(markup.legend((g.name, i) for g, _, i in found), gallery(figures))


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


def left_the_device(setting: Setting) -> Html:
    alone = len(setting.groups) == 1
    parts = [None if alone else _overview(setting)]
    for group in setting.groups:
        if alone:
            parts.append(_ledger(group))
        elif group.private and not group.pooled:
            parts.append(folded(f"{group.name}: every field", _ledger(group)))
    return section("What left the device", *parts, aside(wording.note("ledger")))


def guarantee(group: Group) -> str:
    """Return the guarantee for a user in a few words; simulated noise is named as such."""
    totals = {row["epsilon_user_total"] for row in group.private}
    simulated = totals and "none" not in totals and _simulated(group)
    return _promise(group) + (", noise simulated" if simulated else "")


def _simulated(group: Group) -> bool:
    return (group.first.result.get("privacy") or {}).get("noise") == "simulated"


def _promise(group: Group) -> str:
    if group.pooled:
        return "all data is collected"
    if not group.private:
        return "nothing leaves"
    totals = [row["epsilon_user_total"] for row in group.private]
    if "none" in totals:
        return "no guarantee"
    older = {"epsilon_user": sum(totals)}  # older versions store no more
    privacy: dict[str, Any] = group.first.result.get("privacy") or older
    epsilon, delta = privacy["epsilon_user"], privacy.get("delta_user")
    if better := privacy.get("accountant"):
        epsilon, delta = better["epsilon"], better["delta"]
    return f"epsilon {epsilon:.4g}" + (f", delta {delta:.2g}" if delta else "")


def _overview(setting: Setting) -> Html:
    rows: list[list[str]] = []
    for group in setting.groups:
        open_ = [row for row in group.private if row["epsilon_user_total"] == "none"]
        sent = [f"{len(group.private)}", f"{len(open_)}", size(sum(row["bytes"] for row in open_))]
        promise = _badge(guarantee(group), _simulated(group))
        shown = [NOTHING] * len(sent) if group.pooled else sent
        rows.append([named(setting, group), *shown, promise])
    head = ["method", "fields sent", "without guarantee", "bytes without", "total for a user"]
    return table(head, rows)


def _badge(promise: str, simulated: bool = False) -> Html:
    bad = promise in ("no guarantee", "all data is collected")
    return markup.badge(promise, "bad" if bad else "" if simulated else "good")


def _ledger(group: Group) -> Html:
    if group.pooled:
        return tag("p", "This method collects the interactions of all users in one place.")
    evaluated = [row for row in group.first.result.get("ledger", ()) if row["step"] == "evaluate"]
    measured = folded("Sent for evaluation only", _fields(evaluated))
    if not group.private:
        nothing = tag("p", "Training sends nothing: no field leaves the device.")
        return join(nothing, measured if evaluated else None)
    open_ = [row for row in group.private if row["epsilon_user_total"] == "none"]
    sent = sum(row["bytes"] for row in group.private)
    line = f"{many(len(group.private), 'field')}, {size(sent)} in all. "
    if open_:
        clear = f"{len(open_)} of {len(group.private)} ({size(sum(row['bytes'] for row in open_))})"
        line += f"Without any guarantee: {clear}, so a user has none in total."
    else:
        line += f"Every field has a guarantee; a user spends {_promise(group)} in total."
        line += f" But it has {wording.SIMULATED}." * _simulated(group)
    result = group.first.result
    texts = [wording.secure_sums(result)]
    texts += wording.privacy_lines(result.get("privacy"), open_fields=False)
    more = [tag("p", text.strip()) for text in texts if text and text not in line]
    fields = _fields(group.private, _simulated(group))
    return join(tag("p", line), *more, fields, measured if evaluated else None)


def _fields(rows: list[dict[str, Any]], simulated: bool = False) -> Html:
    most = max((row["bytes"] for row in rows), default=0) or 1
    out: list[list[str]] = []
    for row in rows:
        once, total = row["epsilon"], row["epsilon_user_total"]
        spent = _badge("no guarantee" if total == "none" else f"epsilon {total:.4g}", simulated)
        slack = f", delta {row['delta']:.2g}" if row.get("delta") else ""
        each = NOTHING if once == "none" else f"{once:.4g} per {row['unit']}{slack}"
        sent = join(size(row["bytes"]), markup.bar(row["bytes"] / most))
        kind = [tag("code", row["field"]), spent, row["what"], row["step"]]
        out.append([*kind, sent, row["messages_per_user"], each])
    head = ["field", "total for a user", "what it is", "exchange", "bytes", "times per user"]
    head += ["epsilon each"]
    return table(head, out, left=4, kind="ledger")
