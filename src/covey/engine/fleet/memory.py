"""Memory for the item tables that clients keep, in RAM or in a file, and a check that they fit."""

import ctypes
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from covey.core import CoveyError, Rng
from covey.engine.client.blocks import Engine
from covey.engine.method import Method

GIB = 1 << 30
FLOAT = 4  # bytes
COPIES = 4  # of a table that is shared but moves as a whole: tuned, uploaded, compared, sent back


def memory_of(device: torch.device | str) -> int:
    """Bytes that this machine, or its GPU, has in all."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup/memory.max")
    words = group.read_text().strip() if group.exists() else "max"
    return min(most, int(words)) if words.isdecimal() else most


def release_heap() -> None:
    """Gives freed memory back to the system where the C library can; a few milliseconds."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def limit_of(engine: Engine) -> int:
    """Bytes beyond which a table of all clients is kept in a file; a table on a GPU never is."""
    if engine.device != "cpu":
        return 1 << 62
    return engine.tables_mb * 1_000_000 or memory_of("cpu") // 4


def allocate(shape: Sequence[int], like: Tensor, limit: int, zero: bool = False) -> Tensor:
    """Returns an uninitialised tensor of the type and device of `like`, in RAM or in a file.

    Beyond `limit` bytes a tensor on the CPU is a file, deleted with the tensor. With `zero` it is
    zero, which touches all of its memory at once.
    """
    size = int(torch.Size(shape).numel())
    if size * like.element_size() <= limit or like.device.type != "cpu":
        return (torch.zeros if zero else torch.empty)(shape, dtype=like.dtype, device=like.device)
    file, path = tempfile.mkstemp(prefix="covey-")
    try:
        os.close(file)
        return torch.from_file(path, shared=True, size=size, dtype=like.dtype).view(*shape)
    except (OSError, RuntimeError) as error:
        need, folder = size * like.element_size() / GIB, Path(path).parent
        raise CoveyError(f"{folder} cannot hold a table of {need:.1f} GiB; free space") from error
    finally:
        Path(path).unlink(missing_ok=True)


def check_memory(method: Method, n_clients: int, memory: int, where: str) -> None:
    """Refuses a run whose clients' own tables would not fit into the bytes that `where` has."""
    n_items = method.catalogue.n_items
    each = any(m.whole_table for m in method.mechanisms) and method.grouping.reads_uploads == "each"
    width = _width(method, COPIES if each else 0)
    need = n_clients * n_items * width * FLOAT
    if need > memory:
        size = f"{n_clients:,} clients x {n_items:,} items x {width} numbers"
        wrong = f"the clients' own item tables take {need / GIB:,.1f} GiB ({size})"
        less = "lower model.dim, filter the data (data.min_user, data.min_item), or share the table"
        has = f"and {where} has {memory / GIB:,.1f}"
        raise CoveyError(f"{wrong} {has}; {less} (model.keep_items = false)")


def kept_bytes(method: Method, n_clients: int) -> int:
    """Returns the most bytes that the clients' own item tables take in a checkpoint."""
    return n_clients * method.catalogue.n_items * _width(method, 0) * FLOAT


def _width(method: Method, copies: int) -> int:
    """Numbers of an item in all tables that a client keeps, and in `copies` of the others."""
    model = method.model
    row = model.public(1, Rng.server(0, 0, "width"))
    here = [k for k in model.tables if k in row]
    return sum(row[k][0].numel() * (1 if k in model.kept else copies) for k in here)
