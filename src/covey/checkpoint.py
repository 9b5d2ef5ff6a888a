"""A run's state in one file: the server's record, the clients' private state, and where the run is."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import atomic
from .core import CoveyError, Fields
from .server import Server

FORMAT = "covey checkpoint 1"
SEPARATOR = "|"  # stands in no name of a part or a field


@dataclass(frozen=True)
class Checkpoint:
    server: Server
    fleet: Fields
    progress: dict[str, Any]  # plain data: round, digest of the config, best round, length of the metrics
    users: Fields = field(default_factory=dict)  # metrics of each client at the best round

    def save(self, path: Path) -> None:
        flat = {f"public{SEPARATOR}{k}": v for k, v in self.server.public.items()}
        for name, drawer in self.server.memory.items():
            flat |= {SEPARATOR.join(("memory", name, k)): v for k, v in drawer.items()}
        names = {"drawers": list(self.server.memory)}
        flat |= {f"fleet{SEPARATOR}{k}": v for k, v in self.fleet.items()}
        flat |= {f"users{SEPARATOR}{k}": v for k, v in self.users.items()}
        about = {"format": FORMAT, "progress": json.dumps(self.progress), "names": json.dumps(names)}
        atomic.write(path, lambda part: _save(flat, part, about))


def load(path: Path, device: torch.device | str = "cpu") -> Checkpoint:
    about, flat = read(path, device)
    if about.get("format") != FORMAT:
        raise CoveyError(f"{path} is not a checkpoint of this version; start the run again with covey run")
    part = lambda kind: {k.split(SEPARATOR, 1)[1]: v for k, v in flat.items() if k.split(SEPARATOR, 1)[0] == kind}
    memory: dict[str, Fields] = {name: {} for name in json.loads(about["names"])["drawers"]}
    for key, value in part("memory").items():
        name, _, rest = key.partition(SEPARATOR)
        memory[name][rest] = value
    server = Server(part("public"), dict(memory))
    return Checkpoint(server, part("fleet"), json.loads(about["progress"]), part("users"))


def read(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, str], Fields]:
    """Metadata and tensors of a safetensors file, or one line that says what to do."""
    try:
        with safe_open(str(path), "pt", device=str(device)) as file:
            return dict(file.metadata() or {}), {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise CoveyError(f"{path} is not there: nothing to continue from") from error
    except (SafetensorError, OSError) as error:
        raise CoveyError(f"{path} is damaged ({error}); start the run again with covey run") from error


def _save(flat: Fields, path: Path, about: dict[str, str]) -> None:
    try:
        save_file({k: _plain(v) for k, v in flat.items()}, str(path), about)
    except SafetensorError as error:
        raise OSError(0, str(error)) from error


def _plain(x: Tensor) -> Tensor:
    return x.detach().to("cpu", copy=True).contiguous()


def save_model(public: Fields, path: Path) -> None:
    atomic.write(path, lambda part: _save(public, part, {"format": "covey model 1"}))
