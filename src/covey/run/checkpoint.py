"""Checkpoints: the server's record, the clients' private state and the progress.

`checkpoint.safetensors` is the manifest. It has the server's record and names the files of the
shards, in which the clients' state is. It is renamed into place last, so a process that is killed
leaves either the old checkpoint or the new one. A finished run leaves `state.safetensors` instead,
from which recommendations are made, if it is not large.
"""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from covey.core import CoveyError, Fields, tensor_file
from covey.core.fixed_point import ARITHMETIC
from covey.core.tensor_file import AGAIN as AGAIN
from covey.core.tensor_file import read as read
from covey.engine.fleet.base import RunFleet, Sharded
from covey.engine.fleet.store import Store
from covey.engine.fleet.worker import SHARD
from covey.engine.rounds import Server

FILES = ("checkpoint", "model", "users", "state")  # in a run folder
CHECKPOINT, MODEL, USERS, STATE = (f"{name}.safetensors" for name in FILES)
FORMATS = "covey checkpoint 2", "covey checkpoint 1"  # 1: one file, of an older arithmetic
SMALL = 64_000_000  # bytes of a state that a finished run keeps without being asked
Keep = Literal["nothing", "small", "state", "checkpoint"]
_log = logging.getLogger(__name__)
Row = dict[str, Any]
SEPARATOR = "|"  # no name of a part or a field contains it


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run."""

    server: Server  # the server's record
    fleet: Fields  # the state of the clients
    progress: Row  # round, digest of the configuration, best metrics, bytes of the log
    users: Fields = field(default_factory=dict)  # the metrics of each client at the best round
    shards: dict[str, int] = field(default_factory=dict)  # files of the clients' state: checksums
    arithmetic: int = ARITHMETIC  # the version of the arithmetic of sums

    def save(self, path: Path) -> None:
        flat = {f"public{SEPARATOR}{k}": v for k, v in self.server.public.items()}
        for name, state in self.server.state.items():
            flat |= {SEPARATOR.join(("memory", name, k)): v for k, v in state.items()}
        flat |= {f"fleet{SEPARATOR}{k}": v for k, v in self.fleet.items()}
        flat |= {f"users{SEPARATOR}{k}": v for k, v in self.users.items()}
        about: Row = {"progress": self.progress, "drawers": list(self.server.state)}
        about |= {"shards": self.shards, "arithmetic": self.arithmetic}
        tensor_file.write(path, flat, {"format": FORMATS[0], **about})


def load(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    about, flat = read(path, FORMATS, device)
    parts: dict[str, Fields] = {kind: {} for kind in ("public", "memory", "fleet", "users")}
    for key, value in flat.items():
        kind, _, name = key.partition(SEPARATOR)
        parts.setdefault(kind, {})[name] = value
    state: dict[str, Fields] = {name: {} for name in about["drawers"]}
    for key, value in parts["memory"].items():
        name, _, rest = key.partition(SEPARATOR)
        state[name][rest] = value
    server = Server(parts["public"], dict(state))
    more = about.get("shards", {}), about.get("arithmetic", 1)
    return Checkpoint(server, parts["fleet"], about["progress"], parts["users"], *more)


def save_run(folder: Path, server: Server, fleet: RunFleet, progress: Row, users: Fields) -> None:
    """Saves a checkpoint of a run, then removes the files of the one before."""
    sums: dict[str, int] = {}
    if isinstance(fleet, Sharded):
        sums = fleet.save_shards(folder, f"{progress['round']}")
    Checkpoint(server, fleet.state(), progress, users, sums).save(folder / CHECKPOINT)
    _tidy(folder, sums)


def _tidy(folder: Path, sums: dict[str, int]) -> None:
    for file in _shards(folder):
        if file.name not in sums:
            file.unlink(missing_ok=True)


def restore(fleet: RunFleet, saved: Checkpoint, folder: Path) -> None:
    """Gives a fleet the state that a checkpoint has in its folder."""
    fleet.load(saved.fleet)
    if saved.shards and not isinstance(fleet, Sharded):
        raise CoveyError(f"{folder / CHECKPOINT} was saved with another fleet; {AGAIN}")
    if isinstance(fleet, Sharded):
        fleet.load_shards(folder, saved.shards)
        _tidy(folder, saved.shards)


def remove(folder: Path) -> None:
    """Removes the checkpoint of a run, first its manifest."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    _tidy(folder, {})


def finish(folder: Path, keep: Keep) -> None:
    """Replaces the checkpoint of a finished run by what `keep` says."""
    if keep == "checkpoint" or not (folder / CHECKPOINT).exists():
        return
    size = sum(file.stat().st_size for file in [folder / CHECKPOINT, *_shards(folder)])
    if keep == "state" or (keep == "small" and size <= SMALL):
        whole(folder, load(folder / CHECKPOINT)).save(folder / STATE)
    elif keep == "small":
        lost = "is not kept, so the run cannot recommend to its users; --keep-checkpoint keeps it"
        _log.warning(f"the clients' state (%.0f MB) {lost}", size / 1e6)
    remove(folder)


def whole(folder: Path, saved: Checkpoint) -> Checkpoint:
    """Returns a checkpoint with the state of its shards in it."""
    shards = [read(folder / name, SHARD)[1] for name in saved.shards]
    names = {path.split("/")[1] for part in shards for path in part if path.startswith("deltas/")}
    ids = [part.pop("ids") for part in shards]
    store, shared = Store(sum(map(len, ids)), sparse=frozenset(names)), Fields()
    for ids_C, part in zip(ids, shards):
        store.load(ids_C, part)
        shared |= {k: v for k, v in part.items() if k.startswith("crew/")}
    state = store.state(torch.arange(store.n)) if shards else {}
    return replace(saved, fleet=saved.fleet | state | shared, shards={})


def _shards(folder: Path) -> list[Path]:
    return list(folder.glob("checkpoint-*.safetensors"))


def save_model(public: Fields, path: Path) -> None:
    tensor_file.write(path, public, {"format": "covey model 1"})


def load_model(path: Path, device: torch.device | str = "cpu") -> Fields:
    """Reads what `save_model` wrote: a public model, or the metrics of each client."""
    return read(path, "covey model 1", device)[1]
