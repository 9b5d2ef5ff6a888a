"""How well a defence tells attackers from honest clients: whom filters left out, round by round and over a run."""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.rounds import Server

from .rounds_log import Told


def caught(fleet: SimulatedFleet, server: Server, answered_C: Tensor) -> Told:
    """Of the last round, where there are attackers and a filter: attackers that answered, and that were left out."""
    out_C = server.memory.get("filter", {}).get("left out")
    if out_C is None or fleet.malicious is None:
        return {}
    count = lambda ids_C: float((ids_C >= fleet.n_honest).sum())
    return {"attackers": {"answered": count(answered_C), "left out": count(out_C)}}


def attack_of(fleet: SimulatedFleet, rounds: Path) -> dict[str, Any]:
    """For the result of an attacked run: who attacked, what it knew, and how well filters found them out."""
    if fleet.malicious is None:
        return {}
    attack, many = fleet.malicious.attack, len(fleet.data.training.items) - fleet.n_honest
    return {"attack": {"name": attack.name, "knowledge": attack.knowledge, "clients": many, **detection(rounds)}}


def detection(rounds: Path) -> dict[str, Any]:
    """Precision and recall over the rounds of a run; nothing where there was no filter."""
    told = [json.loads(line).get("told", {}) for line in rounds.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in told if "attackers" in row]
    if not rows:
        return {}
    out, bad = (sum(row[part]["left out"] for row in rows) for part in ("filter", "attackers"))
    came = sum(row["attackers"]["answered"] for row in rows)
    share = lambda of: bad / of if of else None
    return {"left_out": int(out), "precision": share(out), "recall": share(came)}
