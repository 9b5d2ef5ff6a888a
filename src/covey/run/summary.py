"""What a result says about its run beside the figures: the attackers and how well filters found them, what was
pushed, and what could be read."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.data.naming import ids_of
from covey.engine.fleet.base import Population
from covey.engine.rounds import Server
from covey.run.config.schema import Config

from .assemble import Prepared
from .rounds_log import ROUNDS, Told
from .schedule import smallest


def facts(config: Config, prepared: Prepared, people: Population, out: Path) -> dict[str, Any]:
    return {
        **_attack(people, out / ROUNDS),
        **_pushed(prepared, people, out / "metrics.jsonl"),
        **_summed(config, people),
        "sees_validation": _sees_validation(config, prepared, people),
    }


def _attack(people: Population, rounds: Path) -> dict[str, Any]:
    """For the result of an attacked run: who attacked, what it knew, and how well filters found them out."""
    if people.attack is None:
        return {}
    attack, many = people.attack, len(people) - people.n_honest
    return {
        "attack": {
            "name": attack.name,
            "knowledge": attack.knowledge,
            "clients": many,
            **_detection(rounds),
        }
    }


def _detection(rounds: Path) -> dict[str, Any]:
    """Precision and recall over the rounds of a run; nothing where there was no filter."""
    told = [
        json.loads(line).get("told", {}) for line in rounds.read_text(encoding="utf-8").splitlines()
    ]
    rows = [row for row in told if "attackers" in row]
    if not rows:
        return {}
    out, bad = (sum(row[part]["left out"] for row in rows) for part in ("filter", "attackers"))
    came = sum(row["attackers"]["answered"] for row in rows)
    share = lambda of: bad / of if of else None
    return {"left_out": int(out), "precision": share(out), "recall": share(came)}


def _pushed(prepared: Prepared, people: Population, metrics: Path) -> dict[str, Any]:
    """The targets by name, and how far they were pushed after the last round, whose state is what is served."""
    targets, titles = people.program.evaluate.targets, prepared.dataset.titles
    if not targets:
        return {}
    ids = ids_of(prepared.dataset)
    last = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
    return {
        "targets": [
            {"item": t, "id": ids[t], "title": titles[t] if titles else ""} for t in targets
        ],
        "target_last": {"round": last["round"], **last.get("target", {})},
    }


def _summed(config: Config, people: Population) -> dict[str, Any]:
    """Of how many clients a secure sum is, at least, since fewer are never opened; and what is no sum all the same."""
    if not config.fleet.secure:
        return {}
    here = len(people)
    fewest = min(smallest(config, n) for n in (here, here - int(config.run.late * people.n_honest)))
    fewest = min(fewest, config.fleet.group or fewest)
    least, clear = config.fleet.least(fewest), list(config.fleet.clear)
    return {"secure": {"clients_at_least": least, "clear": clear, "masks": config.fleet.masks}}


def _sees_validation(config: Config, prepared: Prepared, people: Population) -> bool:
    """Whether a device scores its test from a list that has the validation items."""
    program = people.program
    listens = program.model.sequential or any(
        m.implements("base_model") for m in program.mechanisms
    )
    return listens and config.evaluate.history == "known" and bool(len(prepared.split.valid.values))


def caught(people: Population, server: Server, answered_C: Tensor) -> Told:
    """Of the last round, where there are attackers and a filter: attackers that answered, and that were left out."""
    out_C = server.state.get("filter", {}).get("left out")
    if out_C is None or people.attack is None:
        return {}
    answered, left_out = (float((ids_C >= people.n_honest).sum()) for ids_C in (answered_C, out_C))
    return {"attackers": {"answered": answered, "left out": left_out}}
