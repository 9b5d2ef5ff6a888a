"""Workers as actors of a Ray cluster, so that one run can use several machines.

`RAY_ADDRESS` names the cluster; without it, Ray starts one on this machine for the run. All
machines need the same versions of Covey and torch.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from covey import __version__
from covey.core.errors import CoveyError
from covey.core.trust import trust_only, trusted

from .base import Clients
from .processes import ONE_THREAD
from .worker import Worker, WorkerLost, worker_of

STARTS_IN = 300  # seconds in which all actors have to be ready
HERE = f"covey {__version__}, torch {torch.__version__}"


class Actor:
    """One worker in the cluster."""

    worker: Worker

    def begin(self, version: str, trust: frozenset[str], *parts: Any) -> str:
        """Takes the clients over; returns the versions that this machine has."""
        if version == HERE:
            torch.set_num_threads(1)
            trust_only(trust)
            clients, ids_N, n_all = parts
            # Copies of what lies in the cluster's store, which is read-only.
            data = clients.data.take(torch.arange(len(ids_N)))
            self.worker = worker_of(replace(clients, data=data), ids_N.clone(), n_all)
        return HERE

    def call(self, what: str, arguments: tuple[Any, ...]) -> Any:
        return getattr(self.worker, what)(*arguments)


@dataclass
class RayActors:
    """The actors of a run."""

    actors: list[Any] = field(default_factory=list)
    apart: bool = True
    started: bool = False  # whether this run has started the cluster

    @classmethod
    def start(cls, slices: Iterable[tuple[Clients, Tensor]], n_all: int) -> "RayActors":
        """Starts an actor for each slice of the clients."""
        ray, team = _ray(), cls()
        parts = [(clients, ids_N, n_all) for clients, ids_N in slices]
        try:
            team.started = _connected(ray, len(parts))
            environment = {"runtime_env": {"env_vars": ONE_THREAD}}
            kind = ray.remote(num_cpus=1, max_restarts=0, **environment)(Actor)
            team.actors = [kind.remote() for _ in parts]
            begun = [a.begin.remote(HERE, trusted(), *p) for a, p in zip(team.actors, parts)]
            found = ray.get(begun, timeout=STARTS_IN)
        except ray.exceptions.GetTimeoutError as error:
            team.close()
            wrong = f"the Ray cluster has not started {len(parts)} actors within {STARTS_IN} s"
            raise CoveyError(f"{wrong}: it needs as many free cores; lower --jobs") from error
        except (ray.exceptions.RayError, ConnectionError, ImportError) as error:
            team.close()
            first = str(error).strip().splitlines()[-1:]
            wrong = f"the Ray cluster cannot run this ({' '.join(first)})"
            raise CoveyError(f"{wrong}; every machine needs {HERE}") from error
        if other := {version for version in found if version != HERE}:
            team.close()
            raise CoveyError(f"the Ray cluster has {other.pop()} and this machine {HERE}")
        return team

    def call(self, what: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        ray = _ray()
        pairs = [(a, some) for a, some in zip(self.actors, arguments) if some is not None]
        try:
            return list(ray.get([actor.call.remote(what, some) for actor, some in pairs]))
        except ray.exceptions.RayActorError as error:
            raise WorkerLost("an actor of the Ray cluster has ended") from error
        except ray.exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from error

    def close(self) -> None:
        ray = _ray()
        for actor in self.actors:
            ray.kill(actor)
        self.actors = []
        if self.started:
            ray.shutdown()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        wrong = "engine.backend = 'ray' needs Ray: python3 -m pip install 'covey[ray]'"
        raise CoveyError(f"{wrong}; or use --backend processes") from error
    return ray


def _connected(ray: Any, many: int) -> bool:
    """Connects to the cluster, or starts one on this machine; returns whether it was started."""
    if ray.is_initialized():
        return False
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": many}
    if not address:
        options["include_dashboard"] = False
    ray.init(logging_level="ERROR", log_to_driver=False, **options)
    return True
