"""The section of the page on privacy: what left the device, and with which guarantee."""

from typing import Any

from covey.study.render import wording
from covey.study.render.markup import Child, Html, join, tag
from covey.study.render.page_shell import aside, badge, bar, folded, section
from covey.study.render.tables import table
from covey.study.render.units import NOTHING, many, size

from .data import Group, Setting
from .sections import named


def left_the_device(setting: Setting) -> Html:
    alone = len(setting.groups) == 1
    parts = [None if alone else _overview(setting)]
    for group in setting.groups:
        if alone:
            parts.append(_ledger(group))
        elif group.private and not group.pooled:
            parts.append(folded(f"{group.name}: every field", _ledger(group)))
    note = (
        "The epsilon of a user is the total over all messages of the user with the most, by basic"
        " composition. Smaller is safer; “no guarantee” means that the content is unprotected."
        " Fields that are protected together share one epsilon."
    )
    return section("What left the device", *parts, aside(note))


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
    rows: list[list[Child]] = []
    for group in setting.groups:
        open_ = [row for row in group.private if row["epsilon_user_total"] == "none"]
        fields = NOTHING if group.pooled else f"{len(group.private)}"
        bytes_ = NOTHING if group.pooled else size(sum(row["bytes"] for row in open_))
        clear = NOTHING if group.pooled else len(open_)
        promise = _badge(guarantee(group), _simulated(group))
        rows.append([named(setting, group), fields, clear, bytes_, promise])
    head = ["method", "fields sent", "without guarantee", "bytes without", "total for a user"]
    return table(head, rows)


def _badge(promise: str, simulated: bool = False) -> Html:
    """Return the guarantee in green, or in red if there is none."""
    bad = promise in ("no guarantee", "all data is collected")
    return badge(promise, "bad" if bad else "" if simulated else "good")


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
    out: list[list[Child]] = []
    for row in rows:
        once, total = row["epsilon"], row["epsilon_user_total"]
        spent = _badge("no guarantee" if total == "none" else f"epsilon {total:.4g}", simulated)
        slack = f", delta {row['delta']:.2g}" if row.get("delta") else ""
        each = NOTHING if once == "none" else f"{once:.4g} per {row['unit']}{slack}"
        sent = join(size(row["bytes"]), bar(row["bytes"] / most))
        kind = [tag("code", row["field"]), spent, row["what"], row["step"]]
        out.append([*kind, sent, row["messages_per_user"], each])
    head = ["field", "total for a user", "what it is", "exchange", "bytes", "times per user"]
    head += ["epsilon each"]
    return table(head, out, left=4, kind="ledger")
