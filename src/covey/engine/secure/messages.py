"""The messages of a secure sum as bytes: a header, then arrays of known types and shapes."""

import hashlib
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC, VERSION = b"CVSS", 1
KEYS, SHARES, VECTOR, REVEAL = range(4)  # the phases, in their order
HEADER = struct.Struct("<4sBB16sq")
Bits = NDArray[np.bool_]


class Malformed(ValueError):
    """Bytes that are not a message of this sum."""


def context_of(run: int, round: int, step: str) -> bytes:
    """The name of one sum, 16 bytes; keys, packets and the graph are bound to it."""
    return hashlib.sha256(f"{run}/{round}/{step}".encode()).digest()[:16]


def frame(phase: int, context: bytes, client: int, body: bytes) -> bytes:
    return HEADER.pack(MAGIC, VERSION, phase, context, client) + body


def unframe(message: bytes, context: bytes) -> tuple[int, int, memoryview]:
    """Phase, client and body of a message, if it belongs to this sum."""
    if len(message) < HEADER.size:
        raise Malformed("a message without a header")
    magic, version, phase, its, client = HEADER.unpack_from(message)
    if magic != MAGIC or version != VERSION or its != context:
        raise Malformed("not a message of this sum")
    return phase, client, memoryview(message)[HEADER.size :]


class Reader:
    """Reads arrays from a body; `end` checks that nothing is left."""

    def __init__(self, body: memoryview | bytes) -> None:
        self.body, self.at = memoryview(body), 0

    def array(self, dtype: str, *shape: int) -> NDArray[Any]:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if size > len(self.body) - self.at:
            raise Malformed("a message ends too early")
        self.at += size
        return np.frombuffer(self.body[self.at - size : self.at], dtype).reshape(shape)

    def bits(self, n: int) -> Bits:
        return np.unpackbits(self.array("u1", -(-n // 8)), count=n).astype(bool)

    def end(self) -> None:
        if self.at != len(self.body):
            raise Malformed("a message has bytes left over")


def bits_of(flags: Bits) -> bytes:
    return np.packbits(flags).tobytes()
