"""How many worker processes a run gets."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from covey.core.errors import CoveyError
from covey.engine.fleet.base import Clients, RunFleet
from covey.run.config.schema import Config

GAIN = 30_000_000  # interactions times rounds from which on several workers save time
LEAST = 200_000  # interactions of a round, below which messages cost more than they gain


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def with_workers(config: Config, workers: int, backend: str = "") -> Config:
    """Returns a configuration with other workers; its tree, and so its digest, stay the same."""
    changed: dict[str, Any] = {"workers": workers} if workers else {}
    changed |= {"backend": backend} if backend else {}
    return replace(config, engine=replace(config.engine, **changed))


def sharing(jobs: int, configs: Sequence[Config]) -> list[Config]:
    """Returns configurations that run side by side with their shares of `jobs` cores as workers."""
    each, more = divmod(max(jobs, len(configs)), max(len(configs), 1))
    share = [each + (k < more) for k in range(len(configs))]
    return [with_workers(c, many if _divides(c) else 1) for c, many in zip(configs, share)]


def _divides(config: Config) -> bool:
    engine = config.engine
    whole = engine.one_pass or engine.device != "cpu" or "pooled" in config.tree
    return not whole and hasattr(config.fleet_class(), "over")


def workers_for(config: Config, clients: Clients) -> int:
    """Returns the number of workers: `engine.workers`, or all cores if the run is large enough."""
    engine = config.engine
    if engine.workers or not _divides(config):
        return engine.workers or 1
    interactions, people = len(clients.data.training.items.values), len(clients.population)
    share = min(config.run.cohort or people, people) / people
    rounds = config.run.rounds * (share if config.run.unit == "round" else 1)
    if interactions * share < LEAST or interactions * rounds < GAIN:
        return 1
    return min(cores(), engine.shards or 16, people)


def fleet_of(config: Config, clients: Clients, workers: int = 1) -> RunFleet:
    """Returns the fleet that `[fleet] use` names, with these clients in some workers."""
    kind, engine = config.fleet_class(), config.engine
    if workers == 1 and engine.backend == "processes":
        fleet: RunFleet = kind.of(clients)
        return fleet
    if not hasattr(kind, "over"):
        wrong = f"fleet.use = {config.fleet.use!r} computes in one process"
        raise CoveyError(f"{wrong}; use --jobs 1, or the simulated fleet")
    many: RunFleet = kind.over(clients, workers, engine.backend)
    return many
