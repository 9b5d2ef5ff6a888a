"""Texts about results that the terminal and the reports share: attacks, privacy, references."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from covey.data.naming import named
from covey.evaluate.settings import TARGET_NAMES as NAMES

from .units import NOTHING, many, percent

SIMULATED = "simulated noise from the run's seed: it shows the cost but gives no protection"
CLEAR = {"enrol": "enrolment messages", "report": "reports"}


@cache
def _texts() -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("texts.toml").read_text("utf-8"))


def note(name: str) -> str:
    """Return what explains the figures of a section."""
    return str(_texts()["notes"][name])


def attackers(result: Mapping[str, Any]) -> str:
    """Describe the attack, what the attackers know, and what filters excluded; "" if none."""
    found = result.get("attack")
    if not found:
        return ""
    bad = found["clients"]
    line = f"{found['name']}, by {bad:,} of {result['dataset']['users'] + bad:,} clients"
    line += f", knowing {found['knowledge']}" if found.get("knowledge") else ""
    if found.get("left_out"):
        precision, recall = percent(found["precision"]), percent(found["recall"])
        line += f"; filters excluded {found['left_out']:,} uploads"
        line += f" (precision {precision}, recall {recall})"
    return line


def targets(result: Mapping[str, Any]) -> str:
    """Name the items whose exposure is measured; results of older versions have no titles."""
    config = result.get("config", {})
    numbers = (config.get(part, {}).get("targets") for part in ("evaluate", "attack"))
    items = next(filter(None, numbers), ())
    found = result.get("targets") or [{"item": item} for item in items]
    return " and ".join(named(t["item"], t.get("id"), t.get("title", "")) for t in found)


def exposure(name: str, value: float) -> str:
    """Format an exposure ratio or a rank."""
    if name not in NAMES or math.isnan(value):
        return NOTHING
    return f"{value:.1f}" if name == "rank" else f"{value:.4f}"


def secure_sums(result: Mapping[str, Any]) -> str:
    """Describe what the server reads with secure sums; "" if it reads every client's upload."""
    if result.get("encrypted"):
        return "encrypted sums: the server reads ciphertexts only, which any client can decrypt"
    found = result.get("secure")
    if not found:
        return ""
    if not found["masks"]:
        return "secure sums without masks (fleet.masks = false) give no protection"
    line = f"secure sums: the server reads only totals over at least {found['clients_at_least']:,}"
    clear = " and ".join(CLEAR[step] for step in found["clear"])
    except_ = f", except {clear}, which it reads singly (fleet.clear)" if clear else ""
    return f"{line} clients{except_}"


def evaluation_fields(rows: Sequence[Mapping[str, Any]]) -> str:
    """Count the fields that are sent only for evaluation; "" if there are none."""
    sent = sum(row["step"] == "evaluate" for row in rows)
    why = "of per-user metrics for evaluation, not counted as traffic"
    return f"and {many(sent, 'field')} {why}" if sent else ""


def told(part: str, figures: Mapping[str, float]) -> str:
    """Describe the counters of a part, those of a user's own part by their names."""
    known = {k: v for k, v in _texts()["told"].get(part, {}).items() if k in figures}
    known |= {name: f"{name} {{:.4g}}" for name in figures if name not in known}
    return f"{part}: {', '.join(text.format(figures[name]) for name, text in known.items())}"


def above_references(above: Mapping[str, Sequence[str]]) -> list[str]:
    """Tell which methods are above each model on pooled data that is shown as a ceiling."""
    what = "on pooled data is a reference, not a bound; above it:"
    return [f"{reference} {what} {', '.join(who)}" for reference, who in above.items()]


def reference_name(result: Mapping[str, Any], name: str) -> str:
    """Name a ceiling with the lists that it scores from; older results have training items only."""
    about = result.get("references", {"sees_validation": False})
    lists = "train+valid" if about["sees_validation"] else "train"
    fixed = "" if "references" in result else ", strength 300"
    return name if name == "popularity" else f"{name}, {lists}{fixed}"


def notes(name: str, figures: Mapping[str, float], result: Mapping[str, Any]) -> list[str]:
    """Tell what is below popularity, which ceilings are missing, and if all users get one list."""
    floor = {k: v for k, v in result["floor"]["popularity"].items() if "/" not in k}
    lines, ceilings = [], result["ceiling"]
    for who, of in ((name, figures), *ceilings.items()):
        worse = [k for k, v in floor.items() if of.get(k, v) < v - 1e-9]
        remedy = "try spectral or ease-sums"
        if of is not figures:
            remedy = "it is no ceiling here"
        elif all(ceilings.get("ease", {}).get(k, 0) > floor[k] for k in worse):
            remedy = "try ease-sums, which computes EASE from sums over clients"
        if worse:
            lines.append(f"{who} is below popularity in {', '.join(worse)}; {remedy}")
    for who, why in result.get("references", {}).get("skipped", {}).items():
        lines.append(f"no ceiling {who}: it {why}, more than the run")
    if first := result.get("selection"):
        line = f"validation items, held out of training in a first run of {first['rounds']} rounds"
        lines.append(f"{line}, selected round {first['round']}; then {name} trained on all items")
    if (found := result.get("lists")) and found["distinct"] == 1 < found["users"]:
        lines.append(f"{name} gives all {found['users']} users the same list")
    return lines


def lists(found: Mapping[str, Any]) -> str:
    """Describe how much the lists of several users differ, in the state that is in use."""
    line = f"{found['k']} best items of {found['users']} simulated users at the end, known ones"
    line += f" included: {many(found['distinct'], 'distinct list')}, mean overlap"
    return f"{line} {found['overlap']:.2f}, {found['coverage']:.1%} of the catalogue"


def exceeds(figures: Mapping[str, float], reference: Mapping[str, float]) -> bool:
    """Return whether a metric of both is above the reference by more than rounding."""
    return any(value > reference.get(k, math.nan) + 1e-9 for k, value in figures.items())


def privacy_lines(privacy: dict[str, Any] | None, open_fields: bool = True) -> list[str]:
    """Describe the privacy budget of a run and, if `open_fields`, what has no guarantee."""
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
        lines.append(f"epsilon: {each}; total for a user {total:.6g}{slack} (basic composition)")
    if better:
        total = f"{better['epsilon']:.6g} ({better['by']})"
        lines.append(f"  at delta {better['delta']:g}: total for a user {total}")
    if privacy.get("noise") == "simulated":
        lines.append(SIMULATED)
    if needs := privacy.get("needs_secure"):
        lines.append(f"with fleet.secure = true, {needs[0]} would have a guarantee")
    if open_ and open_fields:
        more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        lines.append(f"without any guarantee: {open_[0]}{more}; a user has none in total")
    return lines
