"""Python objects over a pipe between two processes of one program; tensors travel as raw bytes.

Both ends must trust each other: objects are pickled.
"""

import pickle
from io import BytesIO
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor


def send(to: Connection, message: Any) -> None:
    """Sends an object; tensors go to the other side's CPU without being copied into the pickle."""
    buffers: list[pickle.PickleBuffer] = []
    data = BytesIO()
    _Pickler(data, protocol=5, buffer_callback=buffers.append).dump(message)
    raws = [buffer.raw() for buffer in buffers]
    to.send([raw.nbytes for raw in raws])
    to.send_bytes(data.getbuffer())
    for raw in raws:
        if raw.nbytes:
            to.send_bytes(raw)


def receive(source: Connection) -> Any:
    """Returns the next object; EOFError or another OSError if the other side has ended."""
    sizes = source.recv()
    data = source.recv_bytes()
    buffers = [bytearray(size) for size in sizes]
    for buffer in buffers:
        if buffer:
            source.recv_bytes_into(buffer)
    return pickle.loads(data, buffers=buffers)


class _Pickler(pickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        if type(x) is not Tensor:
            return NotImplemented
        flat = x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(flat.data), x.dtype, tuple(x.shape))


def _tensor(data: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(data):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).view(shape)
