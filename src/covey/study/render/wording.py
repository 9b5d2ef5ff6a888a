"""What has to be said beside figures, in words that terminal and report share."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from covey.data.naming import named
from covey.evaluate.exposure import NAMES

from .units import NOTHING, many, percent

SIMULATED = "simulated noise, from the run's seed: it shows the cost and protects nobody"
CLEAR = {"enrol": "what clients say on joining", "report": "reports"}
# By reference: who is above it, and whether it sees validation items.
Above = Mapping[str, Sequence[tuple[str, bool]]]


def attackers(result: Mapping[str, Any]) -> str:
    """Who attacked, what they were given, and whom filters left out; empty where nobody did."""
    found = result.get("attack")
    if not found:
        return ""
    bad = found["clients"]
    line = f"{found['name']}, by {bad:,} of {result['dataset']['users'] + bad:,} clients"
    line += f", knowing {found['knowledge']}" if found.get("knowledge") else ""
    if found.get("left_out"):
        precision, recall = percent(found["precision"]), percent(found["recall"])
        line += f"; filters left out {found['left_out']:,} uploads"
        line += f" (precision {precision}, recall {recall})"
    return line


def targets(result: Mapping[str, Any]) -> str:
    """The items whose exposure is measured; results of older versions have no names."""
    config = result.get("config", {})
    numbers = (config.get(part, {}).get("targets") for part in ("evaluate", "attack"))
    items = next(filter(None, numbers), ())
    found = result.get("targets") or [{"item": item} for item in items]
    return " and ".join(named(t["item"], t.get("id"), t.get("title", "")) for t in found)


def exposure(name: str, value: float) -> str:
    """A share, or a rank."""
    if name not in NAMES or math.isnan(value):
        return NOTHING
    return f"{value:.1f}" if name == "rank" else f"{value:.4f}"


def sums(result: Mapping[str, Any]) -> str:
    """What the server can read where it hears sums only; empty where it hears every client."""
    found = result.get("secure")
    if not found:
        return ""
    if not found["masks"]:
        return "secure sums without masks (fleet.masks = false): it protects nobody"
    least = f"{found['clients_at_least']:,} clients at least"
    line = f"secure sums: the server reads only totals, each of {least}"
    clear = " and ".join(CLEAR[step] for step in found["clear"])
    return line + (f"; but {clear} one by one (fleet.clear)" if clear else "")


def study(rows: Sequence[Mapping[str, Any]]) -> str:
    """Fields that are sent only because this is a study; empty where there are none."""
    sent = sum(row["step"] == "evaluate" for row in rows)
    why = "for the study, not counted: users' figures, to select the round"
    return f"and {many(sent, 'field')} {why}" if sent else ""


def no_bound(above: Above) -> list[str]:
    """For figures above those of a model on pooled data that stands beside them as a ceiling."""
    lines = []
    for reference, who in above.items():
        names, seeing = (
            ", ".join(name for name, _ in who),
            ", ".join(name for name, sees in who if sees),
        )
        lines.append(f"{reference} on pooled data is a reference and no bound; above it: {names}")
        if seeing:
            scored = "scored from lists with the validation items in the test"
            lines.append(f"{seeing}: {scored}, {reference} without")
    return lines


def over(figures: Mapping[str, float], reference: Mapping[str, float]) -> bool:
    """In any of the metrics that both have, by more than rounding."""
    return any(value > reference.get(k, math.nan) + 1e-9 for k, value in figures.items())


def owed(privacy: dict[str, Any] | None, open_fields: bool = True) -> list[str]:
    """What a user spends in a run, and what nothing protects, in words.

    Results of older versions say nothing. Without `open_fields`, what nothing protects is left out.
    """
    if privacy is None:
        return []
    open_, total, better = privacy["unprotected"], privacy["epsilon_user"], privacy["accountant"]
    lines = []
    if total:
        parts = [("an item", "item"), ("enrolment", "enrolment")]
        parts += [("a report", "report"), ("a round", "round")]
        spent = ((name, privacy[f"epsilon_{key}"]) for name, key in parts)
        each = ", ".join(f"{name} {epsilon:.4g}" for name, epsilon in spent if epsilon)
        slack = f", delta {privacy['delta_user']:.3g}" if privacy["delta_user"] else ""
        lines.append(f"epsilon: {each}; a user in total {total:.6g}{slack} (basic composition)")
    if better:
        total = f"{better['epsilon']:.6g} ({better['by']})"
        lines.append(f"  at delta {better['delta']:g} a user in total {total}")
    if privacy.get("noise") == "simulated":
        lines.append(SIMULATED)
    if needs := privacy.get("needs_secure"):
        lines.append(f"in a secure sum {needs[0]} has a guarantee: set fleet.secure = true")
    if open_ and open_fields:
        more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        lines.append(f"without any guarantee: {open_[0]}{more}; a user has none in total")
    return lines
