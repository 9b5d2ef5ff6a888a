"""Room for the whole tables that clients keep: in memory, or in a file that the system pages; or an error at once."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.rng import Rng
from covey.engine.client.blocks import Engine
from covey.engine.method import Method

GIB = 1 << 30
FLOAT = 4  # bytes
COPIES = 4


def memory_of(device: torch.device | str) -> int:
    """Bytes that this machine, or its GPU, has in all."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup/memory.max")
    words = group.read_text().strip() if group.exists() else "max"
    return min(most, int(words)) if words.isdecimal() else most


def limit_of(engine: Engine) -> int:
    """Bytes from which on a table of all clients lies in a file; what is on a GPU never does."""
    if engine.device != "cpu":
        return 1 << 62
    return engine.tables_mb * 1_000_000 or memory_of("cpu") // 4


def room(shape: Sequence[int], like: Tensor, limit: int, zero: bool = False) -> Tensor:
    """A tensor of this shape; over `limit` bytes in a file without a name, which goes when nobody holds it.

    Zeros where asked for: that touches all of the memory at once.
    """
    size = int(torch.Size(shape).numel())
    if size * like.element_size() <= limit or like.device.type != "cpu":
        return (torch.zeros if zero else torch.empty)(shape, dtype=like.dtype, device=like.device)
    file, path = tempfile.mkstemp(prefix="covey-")
    try:
        os.close(file)
        return torch.from_file(path, shared=True, size=size, dtype=like.dtype).view(*shape)
    except (OSError, RuntimeError) as error:
        raise CoveyError(
            f"no room for {size * like.element_size() / GIB:.1f} GiB in {Path(path).parent}"
        ) from error
    finally:
        Path(path).unlink(missing_ok=True)


def check_room(method: Method, n_clients: int, memory: int, where: str) -> None:
    """Says before anything starts that the clients' own tables would not fit.

    A table that is kept is held once. One that is shared but moves as a whole, and is looked at client by
    client, is held as tuned, uploaded, compared and sent back.
    """
    model, n_items = method.model, method.catalogue.n_items
    each = any(m.whole_table for m in method.mechanisms) and method.grouping.reads_uploads == "each"
    row = model.public(1, Rng.server(0, 0, "width"))
    held = lambda name: 1 if name in model.kept else COPIES if each else 0
    width = sum(v[0].numel() * held(k) for k, v in row.items() if k in model.tables)
    need = n_clients * n_items * width * FLOAT
    if need > memory:
        raise CoveyError(
            f"the clients' own item tables take {need / GIB:,.1f} GiB ({n_clients:,} clients x {n_items:,} items x"
            f" {width} numbers) and {where} has {memory / GIB:,.1f}; lower model.dim, filter the data"
            " (data.min_user, data.min_item), or share the table (model.keep_items = false)"
        )
