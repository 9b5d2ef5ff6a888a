"""Ciphertexts of parameters: the half of the server, `Public`, and that of the clients, `Secret`.

All parameters are one vector, cut into blocks of one CKKS ciphertext each. CKKS notices no change
of a ciphertext, so the last slots of a block are tags: secret linear functions of the others, which
survive sums and factors. Clients check them when they decrypt.
"""

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from math import ceil, prod, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from covey.core import CoveyError, Fields
from covey.engine.secure.fixed_point import OutOfRange

# Degree and bits of the moduli for sums, and where the server multiplies a sum by a factor. Both
# are within the bounds for 128-bit security, 109 and 218 bits.
SUMS, SCALED = (4096, [54, 54]), (8192, [60, 40, 60])
SCALE = 2.0**40  # of a number in a ciphertext
LARGEST = 2.0**12  # of a decrypted number; from 2^13 on, numbers of the smaller degree wrap
TAGS = 4  # of a block
TOLERANCE = 2e-5  # between a tag and its function; a million sums have a noise of a third of it
HEADER = struct.Struct("<4s16s16sqII")  # magic, key, name of the sum, sender, summed, blocks
MAGIC, SERVER = b"CVH1", -1
TABLE = bytes(16)  # in place of the name of a sum, in messages of the server


class BadMessage(CoveyError):
    """A message that is damaged, or that was not made with the keys of this run."""


class Message(NamedTuple):
    """Ciphertexts, and how many contributions are in their sum."""

    summed: int
    blocks: list[Any]


def pack(data: bytes) -> Tensor:
    """Bytes as a tensor, which a checkpoint can hold."""
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def unpack(tensor: Tensor) -> bytes:
    return tensor.cpu().numpy().tobytes()


@dataclass(frozen=True)
class Public:
    """The half of the server. It has no secret key, so it can add ciphertexts but read none."""

    public: bytes  # a context of TenSEAL without secret key
    many: int  # how many numbers a message has

    @cached_property
    def context(self) -> Any:
        return import_module("tenseal").context_from(self.public, n_threads=1)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """How many blocks a message has, and how many slots a block."""
        known = self.context.seal_context().data.key_context_data().parms()
        slots = known.poly_modulus_degree() // 2
        return ceil(self.many / (slots - TAGS)), slots

    @property
    def key(self) -> bytes:
        return hashlib.sha256(self.public).digest()[:16]

    def encoded(self, message: Message, name: bytes = TABLE, sender: int = SERVER) -> bytes:
        """The message as bytes; the hash at its end shows damage, but no change on purpose."""
        bodies = [block.serialize() for block in message.blocks]
        head = HEADER.pack(MAGIC, self.key, name, sender, message.summed, len(bodies))
        data = b"".join([head, struct.pack(f"<{len(bodies)}I", *map(len, bodies)), *bodies])
        return data + hashlib.sha256(data).digest()

    def decoded(self, data: bytes, name: bytes = TABLE, sender: int = SERVER) -> Message:
        """The message in some bytes, if it is of this key, sum and sender; else `BadMessage`."""
        body, n_blocks = data[:-32], self.shape[0]
        start = HEADER.size + 4 * n_blocks
        if len(body) < start or hashlib.sha256(body).digest() != data[-32:]:
            raise BadMessage("a message of ciphertexts is cut off or damaged; send it again")
        magic, key, its_name, its_sender, summed, its_blocks = HEADER.unpack_from(body)
        if (magic, its_name, its_sender, its_blocks) != (MAGIC, name, sender, n_blocks):
            raise BadMessage("ciphertexts of another sum, sender or shape; send those asked for")
        if key != self.key:
            raise BadMessage(
                "ciphertexts were made with another key; all clients of a run need one"
            )
        ends = np.cumsum([start, *struct.unpack_from(f"<{n_blocks}I", body, HEADER.size)])
        blocks = [self._block(body[a:b], fresh=name != TABLE) for a, b in pairwise(ends)]
        return Message(summed, blocks)

    def _block(self, data: bytes, fresh: bool) -> Any:
        """One ciphertext; a fresh one has not been multiplied."""
        try:
            block = import_module("tenseal").ckks_vector_from(self.context, data)
            (inner,) = block.ciphertext()
        except (ValueError, RuntimeError) as error:
            raise BadMessage(f"a ciphertext cannot be read: {error}; send it again") from error
        first = self.context.seal_context().data.first_parms_id()
        form = inner.scale, inner.size(), block.size(), not fresh or inner.parms_id() == first
        if form != (SCALE, 2, self.shape[1], True):
            raise BadMessage("a ciphertext has other parameters than the run; use the same")
        return block

    def added(self, one: Message | None, two: Message, factor: float = 1.0) -> Message:
        """The first message plus the second times a factor."""
        if one is None:
            return two
        pairs = zip(one.blocks, two.blocks, strict=True)
        sums = [a + (b if factor == 1 else b * factor) for a, b in pairs]
        return Message(one.summed + two.summed, sums)


@dataclass(frozen=True)
class Secret(Public):
    """The half of the clients, which all have the same secret key."""

    private: bytes  # the context with its secret key
    like: Fields  # parameters of the same shapes

    @classmethod
    def load(cls, agreed: Fields, like: Fields) -> "Secret":
        """The keys that `make` returned."""
        many = sum(v.numel() for v in like.values())
        return cls(unpack(agreed["ckks/public"]), many, unpack(agreed["ckks/private"]), like)

    @staticmethod
    def make(scaled: bool) -> Fields:
        """New keys as tensors; `scaled` for sums that the server multiplies."""
        ts, (degree, bits) = import_module("tenseal"), SCALED if scaled else SUMS
        made = ts.context(ts.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=bits, n_threads=1)
        made.global_scale = SCALE
        public, private = (made.serialize(True, own, False, False) for own in (False, True))
        return {"ckks/public": pack(public), "ckks/private": pack(private)}

    @cached_property
    def context(self) -> Any:
        return import_module("tenseal").context_from(self.private, n_threads=1)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each number in each tag of its block, [blocks, tags, numbers]."""
        shape = self.shape[0], TAGS, self.shape[1] - TAGS
        drawn = hashlib.shake_256(b"tags" + self.private).digest(4 * prod(shape))
        return (np.frombuffer(drawn, "<u4").reshape(shape) / 2.0**31 - 1) * sqrt(3 / shape[2])

    def seal(self, fields: Fields, name: bytes, sender: int, limit: float = LARGEST) -> bytes:
        """Encrypts parameters; `OutOfRange` if a number or a tag is larger than `limit`."""
        if {k: v.shape for k, v in fields.items()} != {k: v.shape for k, v in self.like.items()}:
            raise OutOfRange("parameters of other shapes")
        flat = torch.cat([fields[k].detach().double().cpu().flatten() for k in self.like])
        blocks, slots = self.shape
        number_BN = np.pad(flat, (0, blocks * (slots - TAGS) - self.many)).reshape(blocks, -1)
        slot_BS = np.concatenate([number_BN, self._tags(number_BN)], 1)
        if not float(np.abs(slot_BS).max()) <= limit:
            raise OutOfRange(f"a contribution holds a number outside -{limit:g} to {limit:g}")
        ckks_vector = import_module("tenseal").ckks_vector
        vectors = [ckks_vector(self.context, slot_S) for slot_S in slot_BS]
        return self.encoded(Message(1, vectors), name, sender)

    def open(self, table: bytes) -> Fields:
        """Decrypts parameters and checks their tags."""
        slot_BS = np.array([block.decrypt() for block in self.decoded(table).blocks])
        number_BN = slot_BS[:, :-TAGS]
        if not np.abs(self._tags(number_BN) - slot_BS[:, -TAGS:]).max() <= TOLERANCE:
            wrong = "encrypted parameters fail the clients' check: a ciphertext was changed"
            raise BadMessage(f"{wrong}, or made with another key; go back to an earlier checkpoint")
        if not float(np.abs(slot_BS).max()) <= LARGEST:
            wide = f"parameters left the range -{LARGEST:g} to {LARGEST:g} of the ciphertexts"
            raise CoveyError(f"{wide}; train in smaller steps")
        flat = torch.from_numpy(number_BN.reshape(-1)[: self.many].copy())
        parts = flat.split([v.numel() for v in self.like.values()])
        return {k: x.view_as(v).to(v) for (k, v), x in zip(self.like.items(), parts, strict=True)}

    def _tags(self, number_BN: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.einsum("btn,bn->bt", self.weights, number_BN)
