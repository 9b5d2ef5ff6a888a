"""The server's half of a secure sum: it forwards packets, adds masked vectors and removes masks.

Of a client in the sum it learns the seed of the client's own mask, of one that dropped out the mask
key: never both, so no contribution can be read by itself. Every failure ends without a total.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import keys, messages, shamir
from .fixed_point import Integers
from .graph import graph_of
from .messages import Bits, Malformed, Reader
from .party import KEY, NOTHING, PACKET_BYTES, SEED, Secrets
from .settings import FEWEST, FleetConfig, SumFailed

# From a request for each client to the replies that came.
Exchange = Callable[[dict[int, bytes]], Iterable[bytes]]


@dataclass
class Outcome:
    """A sum and its clients, by ascending id."""

    ids: NDArray[np.int64]
    total: Integers


@dataclass
class Coordinator:
    """The server in one sum."""

    ids: list[int]  # clients that are asked
    context: bytes  # the name of the sum
    config: FleetConfig
    length: int  # of a contribution
    dtype: np.dtype[Any]  # of its integers
    exchange: Exchange
    flagged: dict[str, list[int]] = field(default_factory=dict)  # what was wrong: with whom

    def run(self) -> Outcome:
        """Carries out the four phases and removes the masks; raises `SumFailed` if it cannot.

        The first number of every vector is 1. If these do not add up to the number of clients, some
        mask is left, and there is no total.
        """
        if len(set(self.ids)) != len(self.ids):
            raise SumFailed("a client is asked twice for one sum; name each once")
        self._roster(self._keys())
        self._deal()
        total = self._add()
        seeds, mask_keys = self._secrets(*self._revealed())
        for seed in seeds.values():
            keys.mask(total, seed, minus=True)
        for dropped, secret in mask_keys.items():  # the masks shared with clients in the sum
            pair = keys.Pair(secret)
            for partner in self.graph.partners[dropped].tolist():
                if self.summed[partner]:
                    key = pair.agree(self.public[partner, 1].tobytes(), self.context)
                    keys.mask(total, key, minus=partner < dropped)  # the first of two has added it
        if int(total[0]) != int(self.summed.sum()):
            raise SumFailed("masks are left in the total: a client used masks that are not its own")
        return Outcome(self.roster[self.summed], total[1:])

    def flag(self, what: str, client: int) -> None:
        self.flagged.setdefault(what, []).append(client)

    def _ask(
        self, phase: int, bodies: dict[int, bytes], *forms: tuple[Any, ...]
    ) -> Iterator[tuple[int, list[NDArray[Any]]]]:
        """The first reply of each client that was asked, as arrays; others are flagged."""
        asked = {c: messages.frame(phase, self.context, c, body) for c, body in bodies.items()}
        seen: set[int] = set()
        for reply in self.exchange(asked):
            client = -1
            try:
                its, sender, body = messages.unframe(reply, self.context)
                if its != phase or sender not in asked or sender in seen:
                    known = its == phase and sender in asked
                    self.flag("replayed" if known else "misaddressed", sender)
                    continue
                client, reader = sender, Reader(body)
                seen.add(client)
                arrays = [reader.array(*form) for form in forms]
                reader.end()
            except Malformed:
                self.flag("malformed", client)
                continue
            yield client, arrays

    def _keys(self) -> dict[int, NDArray[np.uint8]]:
        """Phase 1: the public keys of each client, [2, 32], without those of low order."""
        probe, found = keys.Pair(), {}
        bodies = dict.fromkeys(self.ids, b"")
        for client, (public,) in self._ask(messages.KEYS, bodies, ("u1", 2, keys.KEY_BYTES)):
            try:
                for key in public:
                    probe.agree(key.tobytes(), self.context)
            except keys.BadKey:
                self.flag("bad key", client)
            else:
                found[client] = public
        return found

    def _roster(self, found: dict[int, NDArray[np.uint8]]) -> None:
        """Fixes who takes part, from which the graph follows; who did not answer counts as lost."""
        self.roster = np.array(sorted(found), dtype=np.int64)
        self.n = len(self.roster)
        if self.n < FEWEST:
            raise SumFailed(f"{self.n} clients are too few for a secure sum; it takes {FEWEST}")
        self.least = self.config.least(len(self.ids))
        self.place = {int(c): i for i, c in enumerate(self.roster)}
        self.public = np.stack([found[int(c)] for c in self.roster])  # [n, 2, 32]
        self.graph = graph_of(self.context, self.roster.astype("<i8").tobytes(), self.config)
        self.H = self.graph.holders.shape[1]

    def _deal(self) -> None:
        """Phase 2: sends the roster, and the keys of each client's holders and partners.

        Collects the sealed packets [n, H] and the hashes of the seeds and of all shares.
        """
        head = np.uint32(self.n).tobytes() + self.roster.astype("<i8").tobytes()
        bodies = {}
        for i, client in enumerate(self.roster.tolist()):
            channel = self.public[self.graph.holders[i], 0].tobytes()
            bodies[client] = head + channel + self.public[self.graph.partners[i], 1].tobytes()
        self.packets = np.zeros((self.n, self.H, PACKET_BYTES), np.uint8)
        self.hashes = np.zeros((self.n, 1 + 2 * self.H, keys.HASH_BYTES), np.uint8)
        self.alive = np.zeros(self.n, bool)
        forms = ("u1", *self.packets.shape[1:]), ("u1", *self.hashes.shape[1:])
        for client, parts in self._ask(messages.SHARES, bodies, *forms):
            at = self.place[client]
            self.packets[at], self.hashes[at] = parts
            self.alive[at] = True
        self._enough(self.alive, "dealt out shares")

    def _add(self) -> Integers:
        """Phase 3: sends who dealt out shares, and the packets for each client.

        Returns the sum of the masked vectors, of which none is kept, and notes who is in it. It
        fails if too few are, or if the graph does not join them.
        """
        columns = self.graph.columns()
        alive = messages.bits_of(self.alive)
        bodies = {}
        for i in np.flatnonzero(self.alive):
            inbox = self.packets[self.graph.holders[i], columns[i]].tobytes()
            bodies[int(self.roster[i])] = alive + inbox
        total = np.zeros(1 + self.length, self.dtype)
        self.summed: Bits = np.zeros(self.n, bool)
        forms = ("u1", -(-self.H // 8)), (self.dtype.str, len(total))
        for client, (bad, vector) in self._ask(messages.VECTOR, bodies, *forms):
            at = self.place[client]
            for j in np.flatnonzero(np.unpackbits(bad, count=self.H)):
                self.flag("packet not opened", int(self.roster[self.graph.holders[at, j]]))
            total += vector
            self.summed[at] = True
        self._enough(self.summed, "contributed")
        if not self.graph.connected(self.summed):
            raise SumFailed("the clients that are left are not connected; raise fleet.neighbours")
        return total

    def _revealed(self) -> tuple[NDArray[np.uint32], Bits]:
        """Phase 4: sends the clients in the sum the list of all of these.

        Returns shares by the client whose secret it is and by holder, [n, H, 16], and which of them
        came and are true, [n, H]: of the right kind, with the hash that the dealer gave.
        """
        shares = np.zeros((self.n, self.H, shamir.LIMBS), np.uint32)
        true = np.zeros((self.n, self.H), bool)
        columns = self.graph.columns()
        expected = np.where(self.summed, SEED, np.where(self.alive, KEY, NOTHING))
        bodies = dict.fromkeys(self.roster[self.summed].tolist(), messages.bits_of(self.summed))
        forms = ("u1", self.H), ("<u4", self.H, shamir.LIMBS)
        for client, (kinds, sent) in self._ask(messages.REVEAL, bodies, *forms):
            at = self.place[client]
            for j in np.flatnonzero(kinds != NOTHING):
                dealer, column, kind = int(self.graph.holders[at, j]), columns[at, j], int(kinds[j])
                asked = kind == expected[dealer]
                known = self.hashes[dealer, 2 * column + kind].tobytes() if asked else b""
                if keys.commit(sent[j].tobytes()) != known:
                    self.flag("false share", client)
                    continue
                shares[dealer, column], true[dealer, column] = sent[j], True
        return shares, true

    def _secrets(self, shares: NDArray[np.uint32], true: Bits) -> tuple[Secrets, Secrets]:
        """Seeds of the clients in the sum and mask keys of those that dropped out, all checked."""
        t = self.config.shares(self.H)
        seeds, mask_keys = Secrets(), Secrets()
        for place in np.flatnonzero(self.alive).tolist():
            have, client = np.flatnonzero(true[place])[:t], self.roster[place]
            if len(have) < t:
                raise SumFailed(f"{len(have)} shares of client {client} came; {t} are needed")
            try:
                secret = shamir.join(tuple((have + 1).tolist()), shares[place, have])
            except shamir.BadShares:
                secret = b""
            if not (secret and self._is(secret, place)):
                self.flag("false shares dealt out", int(client))
                raise SumFailed(f"client {client} dealt out shares of no secret; leave it out")
            (seeds if self.summed[place] else mask_keys)[place] = secret
        return seeds, mask_keys

    def _is(self, secret: bytes, place: int) -> bool:
        """Whether it has the hash, or belongs to the public key, that its client sent before."""
        if self.summed[place]:
            return keys.commit(secret) == self.hashes[place, 0].tobytes()
        return keys.Pair(secret).public == self.public[place, 1].tobytes()

    def _enough(self, named: Bits, did: str) -> None:
        if named.sum() < self.least:
            few = f"{named.sum()} of {len(self.ids)} clients {did}"
            raise SumFailed(f"{few}; a sum needs {self.least}: no mask was opened")
