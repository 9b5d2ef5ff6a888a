"""The client's half of a secure sum (Bonawitz et al., CCS 2017, on the sparse graph of Bell et al., CCS 2020).

It answers four requests, each once and in their order, and checks what it is told. Its secrets live for one
sum: two key pairs and the seed of its own mask. Shapes: n clients of the roster, H holders, K partners.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from . import keys, messages, shamir
from .fixed_point import Integers
from .graph import Graph, graph_of
from .messages import Bits, Reader
from .settings import FEWEST, FleetConfig

PLAIN_BYTES = 2 * shamir.SHARE_BYTES  # a share of the own mask's seed and one of the mask key
PACKET_BYTES = PLAIN_BYTES + keys.TAG_BYTES
NOTHING, SEED, KEY = range(3)  # what is revealed of a client


class Refused(ValueError):
    """A request that an honest client does not answer."""


@dataclass
class Party:
    client: int
    context: bytes
    config: FleetConfig
    contribution: Callable[
        [int], Integers
    ]  # clients of the roster -> what this one adds to the sum
    answered: list[tuple[bytes, bytes]] = field(
        default_factory=list
    )  # digest of a request, reply; by phase
    held: dict[int, bytes] = field(
        default_factory=dict
    )  # by place: the shares of that client's secrets

    def __post_init__(self) -> None:
        self.channel, self.masking = keys.Pair(), keys.Pair()  # for packets; for masks
        self.seed = secrets.token_bytes(shamir.SECRET_BYTES)  # of the own mask

    def handle(self, request: bytes) -> bytes:
        """The answer, or an error and none. The same request again has the same answer."""
        phase, client, body = messages.unframe(request, self.context)
        digest = hashlib.sha256(request).digest()
        if client != self.client or not messages.KEYS <= phase <= messages.REVEAL:
            raise Refused("not addressed to this client")
        if phase < len(self.answered):
            if self.answered[phase][0] != digest:
                raise Refused(
                    "asked for the same twice, but differently"
                )  # two answers could open both masks
            return self.answered[phase][1]
        if phase > len(self.answered):
            raise Refused("asked out of order")
        reader = Reader(body)
        reply = (self._keys, self._shares, self._vector, self._reveal)[phase](reader)
        self.answered.append((digest, messages.frame(phase, self.context, self.client, reply)))
        return self.answered[phase][1]

    def delivered(self) -> None:
        """The last reply is known to have arrived and need not be kept; where thousands live in one process."""
        self.answered[-1] = (self.answered[-1][0], b"")

    def _keys(self, reader: Reader) -> bytes:
        reader.end()
        return self.channel.public + self.masking.public

    def _shares(self, reader: Reader) -> bytes:
        """Deals out shares of the own secrets, sealed for each holder, and says by which hashes to know them."""
        self._enter(reader)
        shares_HSL = shamir.split(
            [self.seed, self.masking.secret], self.H, self.config.shares(self.H)
        )
        packets, hashes = [], [keys.commit(self.seed)]
        for holder, two in zip(self.holders.tolist(), shares_HSL, strict=True):
            seed, key = (share.astype("<u4").tobytes() for share in two)
            packets.append(keys.seal(self.sealing[holder], self.place, holder, seed + key))
            hashes += [keys.commit(seed), keys.commit(key)]
        return b"".join(packets + hashes)

    def _enter(self, reader: Reader) -> None:
        """Learns who takes part; the graph follows from that, so the server cannot choose a client's partners."""
        n = int(reader.array("<u4", 1)[0])
        ids = reader.array("<i8", n)
        at = int(np.searchsorted(ids, self.client))
        if n < FEWEST or bool((np.diff(ids) <= 0).any()) or at == n or ids[at] != self.client:
            raise Refused("a roster without this client, with somebody twice, or of too few")
        self.n, self.place = n, at
        self.graph: Graph = graph_of(self.context, ids.tobytes(), self.config)
        self.holders, self.partners = self.graph.holders[at], self.graph.partners[at]
        self.H = len(self.holders)
        channel, masking = (
            reader.array("u1", self.H, 32),
            reader.array("u1", len(self.partners), 32),
        )
        reader.end()
        agree = lambda pair, which, public: {
            int(who): pair.agree(key.tobytes(), self.context)
            for who, key in zip(which, public, strict=True)
        }
        self.sealing = agree(self.channel, self.holders, channel)
        self.mask_keys = agree(self.masking, self.partners, masking)

    def _vector(self, reader: Reader) -> bytes:
        """The contribution under its masks, and a flag for every packet that could not be opened."""
        self.alive: Bits = reader.bits(self.n)  # who dealt out shares
        packets = reader.array("u1", self.H, PACKET_BYTES)
        reader.end()
        self._enough(self.alive, self.alive)
        bad = np.zeros(self.H, bool)
        for j, holder in enumerate(self.holders.tolist()):
            if self.alive[holder]:
                bad[j] = not self._open(holder, packets[j])
        return messages.bits_of(bad) + self._masked().tobytes()

    def _open(self, sender: int, packet: NDArray[np.uint8]) -> bool:
        try:
            self.held[sender] = keys.unseal(
                self.sealing[sender], sender, self.place, packet.tobytes()
            )
        except keys.BadPacket:
            return False
        return len(self.held[sender]) == PLAIN_BYTES

    def _masked(self) -> Integers:
        """1, which counts the clients, then the contribution; plus the own mask, plus or minus those in common."""
        x = self.contribution(self.n)
        y = np.concatenate([np.ones(1, x.dtype), x])
        keys.mask(y, self.seed)
        for partner, key in self.mask_keys.items():
            if self.alive[partner]:
                keys.mask(y, key, minus=partner < self.place)
        return y

    def _reveal(self, reader: Reader) -> bytes:
        """Of each client whose shares are held: that of its own mask if it is in the sum, else that of its mask key."""
        summed = reader.bits(self.n)
        reader.end()
        self._enough(summed, self.alive)
        if not self.graph.connected(summed):
            raise Refused("the sum would fall into parts")
        kinds, shares = bytearray(self.H), bytearray(self.H * shamir.SHARE_BYTES)
        for j, ward in enumerate(self.holders.tolist()):
            if ward in self.held:
                kinds[j] = SEED if summed[ward] else KEY
                start = 0 if summed[ward] else shamir.SHARE_BYTES
                share = self.held[ward][start : start + shamir.SHARE_BYTES]
                shares[j * shamir.SHARE_BYTES : (j + 1) * shamir.SHARE_BYTES] = share
        return bytes(kinds + shares)

    def _enough(self, named: Bits, among: Bits) -> None:
        if (
            not named[self.place]
            or bool((named & ~among).any())
            or named.sum() < self.config.least(self.n)
        ):
            raise Refused("too few clients are left, or others than before")
