"""The device, and how much it computes at once; loads no PyTorch."""

from dataclasses import dataclass
from typing import Literal

from covey.core.errors import CoveyError

CPU_BLOCK, CUDA_BLOCK = 16_384, 2_000_000  # rows: what a cache holds, and what fills a GPU
CPU_CHUNK, CUDA_CHUNK = 512, 16_000  # megabytes of the uploads of a chunk
FLOATS_PER_MB = 250_000


@dataclass(frozen=True)
class Engine:
    """The device, and how much is computed at once."""

    device: str = "cpu"
    chunk: int = 0  # clients that draw and upload together; 0: by the memory budget
    block_rows: int = 0  # item rows of a block; 0: 16,384 on the CPU, 2,000,000 on CUDA
    memory_mb: int = 0  # budget of a chunk's uploads; 0: 512 on the CPU, 16,000 on CUDA
    tables_mb: int = 0  # own tables beyond it are kept in a file; 0: a quarter of the memory
    # Where a method sums one gradient of each client: one backward pass for many clients, whose
    # numbers are added before they are rounded. Faster, with other last digits, in one process.
    one_pass: bool = False
    shards: int = 0  # files of a checkpoint; 0: 16 for 2,048 clients or more, else by the workers
    workers: int = 0  # processes that share the clients; 0: by the size of the run
    backend: Literal["processes", "ray"] = "processes"  # where workers run: here, or in a cluster

    def __post_init__(self) -> None:
        sizes = (self.chunk, self.block_rows, self.memory_mb, self.tables_mb)
        if min(*sizes, self.shards, self.workers) < 0:
            names = "chunk, block_rows, memory_mb, tables_mb, shards and workers"
            raise CoveyError(f"engine: {names} are at least 0 (0: chosen by the machine)")

    def floats_per_chunk(self) -> int:
        usual = CPU_CHUNK if self.device == "cpu" else CUDA_CHUNK
        return (self.memory_mb or usual) * FLOATS_PER_MB

    def rows_per_block(self) -> int:
        return self.block_rows or (CPU_BLOCK if self.device == "cpu" else CUDA_BLOCK)
