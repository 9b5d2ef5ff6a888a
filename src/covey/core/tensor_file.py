"""Files of tensors with plain data beside them: safetensors with a checksum, written atomically."""

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import atomic
from .errors import CoveyError
from .ragged import Fields

AGAIN = "start again with covey run and another --out"


def write(path: Path, flat: Fields, about: dict[str, Any]) -> int:
    """Writes tensors and plain data, which names the `format`; returns their checksum."""
    flat = {k: _plain(v) for k, v in flat.items()}
    total = _sum(flat, about)
    entry = {"covey": json.dumps({**about, "sum": total}, sort_keys=True)}

    def fill(part: Path) -> None:
        try:  # with one entry, since the order of several is not fixed by the format
            save_file(flat, str(part), entry)
        except SafetensorError as error:
            raise OSError(0, str(error)) from error

    atomic.write(path, fill)
    return total


def read(
    path: Path, kinds: str | tuple[str, ...], device: torch.device | str = "cpu"
) -> tuple[dict[str, Any], Fields]:
    """Returns the plain data and the tensors of a file; `kinds` are the formats it may have."""
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    try:
        with safe_open(str(path), "pt") as file:
            about = json.loads((file.metadata() or {}).get("covey", "{}"))
            flat = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
        if about.get("format") not in kinds:
            raise CoveyError(f"{path} is not a {kinds[0]!r}: another version wrote it; {AGAIN}")
        if about.pop("sum", None) != (total := _sum(flat, about)):
            raise ValueError("its checksum does not fit")
        return about | {"sum": total}, {k: v.to(device) for k, v in flat.items()}
    except FileNotFoundError as error:
        raise CoveyError(f"{path} is not there: nothing to continue from") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CoveyError(f"{path} is damaged ({error}); {AGAIN}") from error


def _sum(flat: Fields, about: dict[str, Any]) -> int:
    total = zlib.crc32(json.dumps(about, sort_keys=True).encode())
    for name in sorted(flat):
        x = flat[name]
        total = zlib.crc32(f"{name} {x.dtype} {list(x.shape)}".encode(), total)
        total = zlib.crc32(x.flatten().view(torch.uint8).numpy().data, total)
    return total


def _plain(x: Tensor) -> Tensor:
    """A contiguous copy on the CPU, also of a single number with a stride."""
    return x.detach().to("cpu").clone(memory_format=torch.contiguous_format)
