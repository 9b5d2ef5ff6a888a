"""What a result records besides metrics: the attack, its targets, and secure sums."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.data.naming import ids_of
from covey.engine.fleet.base import Population
from covey.engine.rounds import Server
from covey.run.config.schema import Config

from .assemble import Prepared
from .checkpoint import MODEL, load_model
from .rounds_log import ROUNDS, PartMetrics
from .schedule import smallest_cohort

HUGE = 100.0  # no parameter of a model that was trained well is as large
FALL = 0.8  # of the figure after the first round, below which training has failed


def summary(
    config: Config, prepared: Prepared, people: Population, out: Path, dropped: Mapping[str, int]
) -> dict[str, Any]:
    """Returns these entries of a federated run: its folder, and how many uploads were dropped."""
    model, mechanisms = people.program.model, people.program.mechanisms
    reads_list = model.sequential or any(m.implements("base_model") for m in mechanisms)
    shown = config.evaluate.history == "known" and bool(len(prepared.split.valid.values))
    return {
        **_attack(people, out / ROUNDS),
        **_targets(prepared, people, out / "metrics.jsonl"),
        **_secure_sums(config, people),
        "sees_validation": reads_list and shown,  # scores test items from a list that has these
        "health": _health(config, out, dropped),
    }


def _attack(people: Population, rounds: Path) -> dict[str, Any]:
    """Who attacked, what the attackers knew, and how well filters detected them."""
    if people.attack is None:
        return {}
    attack, n_attackers = people.attack, len(people) - people.n_honest
    about = {"name": attack.name, "knowledge": attack.knowledge, "clients": n_attackers}
    lines = rounds.read_text(encoding="utf-8").splitlines()
    rows = [row for line in lines if "attackers" in (row := json.loads(line).get("told", {}))]
    if not rows:  # there was no filter
        return {"attack": about}
    out, bad = (sum(row[part]["left out"] for row in rows) for part in ("filter", "attackers"))
    came = sum(row["attackers"]["answered"] for row in rows)
    precision, recall = (bad / n if n else None for n in (out, came))
    found = {"left_out": int(out), "precision": precision, "recall": recall}
    return {"attack": {**about, **found}}


def _targets(prepared: Prepared, people: Population, metrics: Path) -> dict[str, Any]:
    """The targets by name, and their exposure after the last round, with whose state one ranks."""
    targets, titles = people.program.evaluate.targets, prepared.dataset.titles
    if not targets:
        return {}
    ids = ids_of(prepared.dataset)
    last = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
    named = [{"item": t, "id": ids[t], "title": titles[t] if titles else ""} for t in targets]
    return {"targets": named, "target_last": {"round": last["round"], **last.get("target", {})}}


def _secure_sums(config: Config, people: Population) -> dict[str, Any]:
    """The fewest clients that a secure sum has, and which fields are sent outside of the sums."""
    if config.fleet.encrypted:
        return {"encrypted": True}
    if not config.fleet.secure:
        return {}
    n = len(people)
    at_start = n - int(config.run.late * people.n_honest)
    fewest = min(smallest_cohort(config, n), smallest_cohort(config, at_start))
    fewest = min(fewest, config.fleet.group or fewest)
    least, clear = config.fleet.least(fewest), list(config.fleet.clear)
    return {"secure": {"clients_at_least": least, "clear": clear, "masks": config.fleet.masks}}


def _health(config: Config, out: Path, dropped: Mapping[str, int]) -> list[str]:
    """What shows that training failed, each with a remedy; empty if nothing does."""
    solver = config.tree.get("solver")
    if solver is None:  # sums are as large as the data make them
        return []
    found, slower = [], f"train in smaller steps than solver.lr = {solver.get('lr', 0):g}"
    if many := dropped.get("not finite", 0) + dropped.get("out of range", 0):
        found.append(f"{many:,} uploads had numbers out of range and were dropped; {slower}")
    trained = (v for k, v in load_model(out / MODEL).items() if "/" not in k and v.numel())
    for largest in [size for v in trained if not (size := float(v.abs().max())) < HUGE][:1]:
        found.append(f"training diverged: parameters reach {largest:.2g}; {slower}")
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first, last, key = json.loads(lines[0]), json.loads(lines[-1]), config.evaluate.selector
    part = "valid" if "valid" in first else "test"
    if not found and len(lines) > 1 and last[part][key] <= FALL * first[part][key]:
        was, now = (f"{row[part][key]:.4f} in round {row['round']}" for row in (first, last))
        found.append(f"training failed: {key} was {was} and {now}; {slower}, or in fewer --rounds")
    return found


def detection_counts(people: Population, server: Server, answered_C: Tensor) -> PartMetrics:
    """Attackers that answered in the last round, and those left out; {} without a filter."""
    out_C = server.state.get("filter", {}).get("left out")
    if out_C is None or people.attack is None:
        return {}
    answered, left_out = (float((ids_C >= people.n_honest).sum()) for ids_C in (answered_C, out_C))
    return {"attackers": {"answered": answered, "left out": left_out}}
