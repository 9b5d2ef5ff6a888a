"""The client's half of a secure sum: Bonawitz et al. (CCS 2017) on the graph of Bell et al. (2020).

A party answers four requests, each once and in their order, and checks each before it answers. Its
secrets are made for one sum: two key pairs and the seed of its own mask. In every request arrays
are in the order of the party's holders or partners, which it computes from the roster.
Shapes: n clients of the roster, H holders, K partners. A place is a position in the roster.
"""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from . import keys, messages, shamir
from .fixed_point import Integers
from .graph import Graph, Places, graph_of
from .messages import Bits, Reader
from .settings import FEWEST, FleetConfig

PLAIN_BYTES = 2 * shamir.SHARE_BYTES  # a share of the own mask's seed and one of the mask key
PACKET_BYTES = PLAIN_BYTES + keys.TAG_BYTES
Secrets = dict[int, bytes]  # by place of a client
NOTHING, SEED, KEY = range(3)  # what is revealed of a client


class Refused(ValueError):
    """A request that an honest client does not answer."""


@dataclass
class Party:
    """One client in one sum."""

    client: int
    context: bytes  # the name of the sum, to which keys, packets and messages are bound
    config: FleetConfig  # what all parties agree on
    contribution: Callable[[int], Integers]  # number of clients in the roster -> what to add
    # By phase, the digest of the request and the reply.
    answered: list[tuple[bytes, bytes]] = field(default_factory=list)
    # By place of the client that dealt them, a share of its seed and one of its mask key.
    held: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.channel, self.masking = keys.Pair(), keys.Pair()  # for packets; for masks
        self.seed = secrets.token_bytes(shamir.SECRET_BYTES)  # of the own mask

    def handle(self, request: bytes) -> bytes:
        """Returns the reply to a request, or raises `Refused`.

        Checks that the request belongs to this sum, client and phase. A repeated request has the
        same reply; a different one of a phase that was answered is refused, because two answers
        could open both masks of a client.
        """
        phase, client, body = messages.unframe(request, self.context)
        digest = hashlib.sha256(request).digest()
        if client != self.client or not messages.KEYS <= phase <= messages.REVEAL:
            raise Refused("not addressed to this client")
        if phase < len(self.answered):
            if self.answered[phase][0] != digest:
                raise Refused("another request of this phase was answered")
            return self.answered[phase][1]
        if phase > len(self.answered):
            raise Refused("asked out of order")
        reader = Reader(body)
        reply = (self._keys, self._shares, self._vector, self._reveal)[phase](reader)
        self.answered.append((digest, messages.frame(phase, self.context, self.client, reply)))
        return self.answered[phase][1]

    def delivered(self) -> None:
        """Forgets the last reply, which is known to have arrived; saves memory in simulations."""
        self.answered[-1] = (self.answered[-1][0], b"")

    def _keys(self, reader: Reader) -> bytes:
        """Phase 1. Receives nothing. Sends the two public keys."""
        reader.end()
        return self.channel.public + self.masking.public

    def _shares(self, reader: Reader) -> bytes:
        """Phase 2. Receives the roster and the keys of holders and partners (`_enter`).

        Sends H packets, each sealed for one holder with its shares of the seed and of the mask key,
        then hashes by which the server can recognise true shares: of the seed, and of each share.
        """
        self._enter(reader)
        secrets_2 = [self.seed, self.masking.secret]
        shares_HSL = shamir.split(secrets_2, self.H, self.config.shares(self.H))
        packets, hashes = [], [keys.commit(self.seed)]
        for holder, two in zip(self.holders.tolist(), shares_HSL, strict=True):
            seed, key = (share.astype("<u4").tobytes() for share in two)
            packets.append(keys.seal(self.sealing[holder], self.place, holder, seed + key))
            hashes += [keys.commit(seed), keys.commit(key)]
        return b"".join(packets + hashes)

    def _enter(self, reader: Reader) -> None:
        """Reads the number of clients, their ids, H packet keys [H, 32] and K mask keys [K, 32].

        Checks that the ids ascend without repetition, include this client and are enough. The graph
        follows from them, so the server cannot choose a client's partners. Agrees on one key with
        each holder, for packets, and with each partner, for masks.
        """
        n = int(reader.array("<u4", 1)[0])
        ids = reader.array("<i8", n)
        at = int(np.searchsorted(ids, self.client))
        if n < FEWEST or bool((np.diff(ids) <= 0).any()) or at == n or ids[at] != self.client:
            raise Refused("a roster without this client, with a client twice, or of too few")
        self.n, self.place = n, at
        self.graph: Graph = graph_of(self.context, ids.tobytes(), self.config)
        self.holders, self.partners = self.graph.holders[at], self.graph.partners[at]
        self.H = len(self.holders)
        channel = reader.array("u1", self.H, keys.KEY_BYTES)
        masking = reader.array("u1", len(self.partners), keys.KEY_BYTES)
        reader.end()
        self.sealing = self._agreed(self.channel, self.holders, channel)
        self.mask_keys = self._agreed(self.masking, self.partners, masking)

    def _agreed(self, pair: keys.Pair, places: Places, public: NDArray[np.uint8]) -> Secrets:
        named = zip(places.tolist(), public, strict=True)
        return {place: pair.agree(key.tobytes(), self.context) for place, key in named}

    def _vector(self, reader: Reader) -> bytes:
        """Phase 3. Receives who dealt out shares, n bits, and the packets of the H holders.

        Checks that this client is among them and that they are enough (`_enough`). Sends a flag for
        each packet that cannot be opened, H bits, and the masked contribution.
        """
        self.alive: Bits = reader.bits(self.n)
        packets = reader.array("u1", self.H, PACKET_BYTES)
        reader.end()
        self._enough(self.alive, self.alive)
        bad = np.zeros(self.H, bool)
        for j, holder in enumerate(self.holders.tolist()):
            if self.alive[holder]:
                key, packet = self.sealing[holder], packets[j].tobytes()
                try:
                    self.held[holder] = keys.unseal(key, holder, self.place, packet)
                    bad[j] = len(self.held[holder]) != PLAIN_BYTES
                except keys.BadPacket:
                    bad[j] = True
        return messages.bits_of(bad) + self._masked().tobytes()

    def _masked(self) -> Integers:
        """The number 1, which counts clients, and the contribution, under all masks.

        The own mask is added. Of two partners that are alive, the first in the roster adds their
        common mask and the second subtracts it.
        """
        x = self.contribution(self.n)
        y = np.concatenate([np.ones(1, x.dtype), x])
        keys.mask(y, self.seed)
        for partner, key in self.mask_keys.items():
            if self.alive[partner]:
                keys.mask(y, key, minus=partner < self.place)
        return y

    def _reveal(self, reader: Reader) -> bytes:
        """Phase 4. Receives who is in the sum, n bits.

        Checks that they dealt out shares, that this client is among them, that they are enough
        (`_enough`), and that the graph joins them, since a part by itself would be a smaller sum.
        Sends, for each of the H clients whose shares it holds, the kind and one share: of the seed
        if the client is in the sum, else of its mask key. Never both.
        """
        summed = reader.bits(self.n)
        reader.end()
        self._enough(summed, self.alive)
        if not self.graph.connected(summed):
            raise Refused("the sum would fall into unconnected parts")
        size = shamir.SHARE_BYTES
        kinds, shares = bytearray(self.H), bytearray(self.H * size)
        for j, dealer in enumerate(self.holders.tolist()):
            if dealer in self.held:
                kinds[j] = SEED if summed[dealer] else KEY
                start = 0 if summed[dealer] else size
                shares[j * size : (j + 1) * size] = self.held[dealer][start : start + size]
        return bytes(kinds + shares)

    def _enough(self, named: Bits, among: Bits) -> None:
        """Refuses a list without this client, with others than `among`, or below the threshold."""
        few = named.sum() < self.config.least(self.n)
        if few or not named[self.place] or bool((named & ~among).any()):
            raise Refused("too few clients are left, or others than before")
