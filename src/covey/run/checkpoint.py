"""Checkpoints: one file with the server's record, the clients' private state and the progress."""

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from covey.core import atomic
from covey.core.errors import CoveyError
from covey.core.ragged import Fields
from covey.engine.rounds import Server

# Files in a run folder.
CHECKPOINT, MODEL, USERS = (f"{name}.safetensors" for name in ("checkpoint", "model", "users"))
FORMAT = "covey checkpoint 1"
AGAIN = "start again with covey run and another --out"
SEPARATOR = "|"  # no name of a part or a field contains it


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run.

    Args:
        server: The server's record.
        fleet: The state of the clients.
        progress: Plain data: the round, the configuration's digest, the best row of metrics and
            the length of `metrics.jsonl`.
        users: The metrics of each client at the best round.
    """

    server: Server
    fleet: Fields
    progress: dict[str, Any]
    users: Fields = field(default_factory=dict)

    def save(self, path: Path) -> None:
        flat = {f"public{SEPARATOR}{k}": v for k, v in self.server.public.items()}
        for name, state in self.server.state.items():
            flat |= {SEPARATOR.join(("memory", name, k)): v for k, v in state.items()}
        flat |= {f"fleet{SEPARATOR}{k}": v for k, v in self.fleet.items()}
        flat |= {f"users{SEPARATOR}{k}": v for k, v in self.users.items()}
        about = {"format": FORMAT, "progress": self.progress, "drawers": list(self.server.state)}
        atomic.write(path, lambda part: _save(flat, part, about))


def load(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    about, flat = read(path, FORMAT, device)
    parts: dict[str, Fields] = {kind: {} for kind in ("public", "memory", "fleet", "users")}
    for key, value in flat.items():
        kind, _, name = key.partition(SEPARATOR)
        parts.setdefault(kind, {})[name] = value
    state: dict[str, Fields] = {name: {} for name in about["drawers"]}
    for key, value in parts["memory"].items():
        name, _, rest = key.partition(SEPARATOR)
        state[name][rest] = value
    server = Server(parts["public"], dict(state))
    return Checkpoint(server, parts["fleet"], about["progress"], parts["users"])


def read(
    path: Path, kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Any], Fields]:
    """Returns the metadata and the tensors of a safetensors file; `kind` is its expected format."""
    try:
        with safe_open(str(path), "pt") as file:
            about = json.loads((file.metadata() or {}).get("covey", "{}"))
            flat = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        if about.get("format") != kind:
            raise CoveyError(f"{path} is not a {kind!r}: another version wrote it; {AGAIN}")
        if about.pop("sum", None) != _sum(flat, about):
            raise ValueError("its checksum does not fit")
        return about, {k: v.to(device) for k, v in flat.items()}
    except FileNotFoundError as error:
        raise CoveyError(f"{path} is not there: nothing to continue from") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CoveyError(f"{path} is damaged ({error}); {AGAIN}") from error


def _save(flat: Fields, path: Path, about: dict[str, Any]) -> None:
    """Writes one entry of metadata, since the order of several is not fixed by the format."""
    flat = {k: _plain(v) for k, v in flat.items()}
    about = {**about, "sum": _sum(flat, about)}
    try:
        save_file(flat, str(path), {"covey": json.dumps(about, sort_keys=True)})
    except SafetensorError as error:
        raise OSError(0, str(error)) from error


def _sum(flat: Fields, about: dict[str, Any]) -> int:
    """A checksum of metadata and tensors, which the format itself lacks."""
    total = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(flat):
        x = flat[name]
        total = zlib.crc32(f"{name} {x.dtype} {list(x.shape)}".encode(), total)
        total = zlib.crc32(x.flatten().view(torch.uint8).numpy().data, total)
    return total


def _plain(x: Tensor) -> Tensor:
    """A contiguous copy on the CPU, also of a single number with a stride."""
    return x.detach().to("cpu").clone(memory_format=torch.contiguous_format)


def save_model(public: Fields, path: Path) -> None:
    atomic.write(path, lambda part: _save(public, part, {"format": "covey model 1"}))


def load_model(path: Path, device: torch.device | str = "cpu") -> Fields:
    """Reads what `save_model` wrote: a public model, or the metrics of each client."""
    return read(path, "covey model 1", device)[1]
