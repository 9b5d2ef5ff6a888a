"""A run's state in one file: the server's record, the clients' private state, and where the run is."""

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

CHECKPOINT, MODEL, USERS = (
    "checkpoint.safetensors",
    "model.safetensors",
    "users.safetensors",
)  # in a run folder
FORMAT = "covey checkpoint 1"
AGAIN = "start again with covey run and another --out"
SEPARATOR = "|"  # stands in no name of a part or a field


@dataclass(frozen=True)
class Checkpoint:
    server: Server
    fleet: Fields
    progress: dict[
        str, Any
    ]  # plain data: round, digest of the config, best round, length of the metrics
    users: Fields = field(default_factory=dict)  # metrics of each client at the best round

    def save(self, path: Path) -> None:
        flat = {f"public{SEPARATOR}{k}": v for k, v in self.server.public.items()}
        for name, drawer in self.server.state.items():
            flat |= {SEPARATOR.join(("memory", name, k)): v for k, v in drawer.items()}
        flat |= {f"fleet{SEPARATOR}{k}": v for k, v in self.fleet.items()}
        flat |= {f"users{SEPARATOR}{k}": v for k, v in self.users.items()}
        about = {"format": FORMAT, "progress": self.progress, "drawers": list(self.server.state)}
        atomic.write(path, lambda part: _save(flat, part, about))


def load(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    about, flat = read(path, FORMAT, device)
    part = lambda kind: {
        k.split(SEPARATOR, 1)[1]: v for k, v in flat.items() if k.split(SEPARATOR, 1)[0] == kind
    }
    memory: dict[str, Fields] = {name: {} for name in about["drawers"]}
    for key, value in part("memory").items():
        name, _, rest = key.partition(SEPARATOR)
        memory[name][rest] = value
    server = Server(part("public"), dict(memory))
    return Checkpoint(server, part("fleet"), about["progress"], part("users"))


def read(
    path: Path, kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Any], Fields]:
    """Metadata and tensors of a safetensors file, or one line that says what to do."""
    try:
        with safe_open(str(path), "pt") as file:
            about = json.loads((file.metadata() or {}).get("covey", "{}"))
            flat = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        if about.get("format") != kind:
            raise CoveyError(f"{path} is no {kind!r}: another version wrote it; {AGAIN}")
        if about.pop("sum", None) != _sum(flat, about):
            raise ValueError("its checksum does not fit")
        return about, {k: v.to(device) for k, v in flat.items()}
    except FileNotFoundError as error:
        raise CoveyError(f"{path} is not there: nothing to continue from") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CoveyError(f"{path} is damaged ({error}); {AGAIN}") from error


def _save(flat: Fields, path: Path, about: dict[str, Any]) -> None:
    """One entry of metadata: the format keeps several in no fixed order, and equal states must be equal bytes."""
    flat = {k: _plain(v) for k, v in flat.items()}
    about = {**about, "sum": _sum(flat, about)}
    try:
        save_file(flat, str(path), {"covey": json.dumps(about, sort_keys=True)})
    except SafetensorError as error:
        raise OSError(0, str(error)) from error


def _sum(flat: Fields, about: dict[str, Any]) -> int:
    """A checksum of everything, which the format itself does not have."""
    total = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(flat):
        x = flat[name]
        total = zlib.crc32(f"{name} {x.dtype} {list(x.shape)}".encode(), total)
        total = zlib.crc32(x.flatten().view(torch.uint8).numpy().data, total)
    return total


def _plain(x: Tensor) -> Tensor:
    return (
        x.detach().to("cpu").clone(memory_format=torch.contiguous_format)
    )  # also where one number has a stride


def save_model(public: Fields, path: Path) -> None:
    atomic.write(path, lambda part: _save(public, part, {"format": "covey model 1"}))


def load_model(path: Path, device: torch.device | str = "cpu") -> Fields:
    """What `save_model` wrote: a public model, or each client's figures."""
    return read(path, "covey model 1", device)[1]
