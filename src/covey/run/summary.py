"""What a result says of its run beside the figures: who attacked, what was pushed, and what could be read."""

import json
from pathlib import Path
from typing import Any

from covey.data.naming import ids_of
from covey.engine.fleet.simulated import SimulatedFleet
from covey.run.config.schema import Config

from .assemble import Prepared
from .detection import attack_of
from .rounds_log import ROUNDS
from .schedule import smallest


def facts(config: Config, prepared: Prepared, fleet: SimulatedFleet, out: Path) -> dict[str, Any]:
    return {
        **attack_of(fleet, out / ROUNDS),
        **_pushed(prepared, fleet, out / "metrics.jsonl"),
        **_summed(config, fleet),
        "sees_validation": _sees_validation(config, prepared, fleet),
    }


def _pushed(prepared: Prepared, fleet: SimulatedFleet, metrics: Path) -> dict[str, Any]:
    """The targets by name, and how far they were pushed after the last round, whose state is what is served."""
    targets, titles = fleet.program.evaluate.targets, prepared.dataset.titles
    if not targets:
        return {}
    ids = ids_of(prepared.dataset)
    last = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
    return {
        "targets": [{"item": t, "id": ids[t], "title": titles[t] if titles else ""} for t in targets],
        "target_last": {"round": last["round"], **last.get("target", {})},
    }


def _summed(config: Config, fleet: SimulatedFleet) -> dict[str, Any]:
    """Of how many clients a secure sum is, at least, since fewer are never opened; and what is no sum all the same."""
    if not config.fleet.secure:
        return {}
    here = len(fleet.data.training.items)
    fewest = min(smallest(config, n) for n in (here, here - int(config.run.late * fleet.n_honest)))
    fewest = min(fewest, config.fleet.group or fewest)
    least, clear = config.fleet.least(fewest), list(config.fleet.clear)
    return {"secure": {"clients_at_least": least, "clear": clear, "masks": config.fleet.masks}}


def _sees_validation(config: Config, prepared: Prepared, fleet: SimulatedFleet) -> bool:
    """Whether a device scores its test from a list that has the validation items."""
    program = fleet.program
    listens = program.model.sequential or any(m.overrides("base") for m in program.mechanisms)
    return listens and config.evaluate.history == "known" and bool(len(prepared.split.valid.values))
