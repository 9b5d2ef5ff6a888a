"""The server's half of a secure sum: it passes packets on, adds masked vectors, and removes what is left of masks.

Of a client in the sum it learns the seed of the client's own mask, of one that dropped out the mask key: never
both, so no contribution can be read alone. Every failure ends without a total.
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
from .party import KEY, NOTHING, PACKET_BYTES, SEED
from .settings import FEWEST, FleetConfig, SumFailed

Exchange = Callable[
    [dict[int, bytes]], Iterable[bytes]
]  # a request for each client -> the replies that came


@dataclass
class Outcome:
    ids: NDArray[np.int64]  # who is in the sum, ascending
    total: Integers


@dataclass
class Coordinator:
    ids: list[int]  # who is asked
    context: bytes
    config: FleetConfig
    length: int  # of a contribution
    dtype: np.dtype[Any]
    exchange: Exchange
    flagged: dict[str, list[int]] = field(
        default_factory=dict
    )  # what was not in order -> whose it was

    def run(self) -> Outcome:
        if len(set(self.ids)) != len(self.ids):
            raise SumFailed("a client is asked twice for one sum; name each once")
        self._roster(self._keys())
        self._deal()
        total = self._add()
        seeds, mask_keys = self._secrets(*self._revealed())
        for seed in seeds.values():
            keys.mask(total, seed, minus=True)
        for place, secret in mask_keys.items():
            self._remove(total, place, secret)
        count = int(self.summed.sum())
        if int(total[0]) != count:
            raise SumFailed(
                "masks are left in the total: a contribution was made with masks that are not its own"
            )
        return Outcome(self.roster[self.summed], total[1:])

    def flag(self, what: str, client: int) -> None:
        self.flagged.setdefault(what, []).append(client)

    def _ask(self, phase: int, bodies: dict[int, bytes]) -> Iterator[tuple[int, Reader]]:
        """The first reply of each client; whatever else comes is flagged and dropped."""
        asked = {c: messages.frame(phase, self.context, c, body) for c, body in bodies.items()}
        seen: set[int] = set()
        for reply in self.exchange(asked):
            try:
                its, client, body = messages.unframe(reply, self.context)
            except Malformed:
                self.flag("malformed", -1)
                continue
            if its != phase or client not in asked:
                self.flag("misaddressed", client)
            elif client in seen:
                self.flag("replayed", client)
            else:
                seen.add(client)
                yield client, Reader(body)

    def _parsed(
        self, client: int, reader: Reader, *forms: tuple[Any, ...]
    ) -> list[NDArray[Any]] | None:
        try:
            out = [reader.array(*form) for form in forms]
            reader.end()
        except Malformed:
            self.flag("malformed", client)
            return None
        return out

    def _keys(self) -> dict[int, NDArray[np.uint8]]:
        probe, found = keys.Pair(), {}
        for client, reader in self._ask(messages.KEYS, dict.fromkeys(self.ids, b"")):
            parts = self._parsed(client, reader, ("u1", 2, keys.KEY_BYTES))
            if parts is None:
                continue
            try:
                for public in parts[0]:
                    probe.agree(public.tobytes(), self.context)
            except keys.BadKey:
                self.flag("bad key", client)
            else:
                found[client] = parts[0]
        return found

    def _roster(self, found: dict[int, NDArray[np.uint8]]) -> None:
        self.roster = np.array(sorted(found), dtype=np.int64)
        self.n = len(self.roster)
        if self.n < FEWEST:
            raise SumFailed(f"{self.n} clients are too few for a secure sum; it takes {FEWEST}")
        self.least = self.config.least(
            len(self.ids)
        )  # of those asked: who never answered counts as lost
        self.place = {int(c): i for i, c in enumerate(self.roster)}
        self.public = np.stack([found[int(c)] for c in self.roster])  # [n, 2, 32]
        self.graph = graph_of(self.context, self.roster.astype("<i8").tobytes(), self.config)
        self.H = self.graph.holders.shape[1]

    def _deal(self) -> None:
        """Collects the sealed shares and the hashes by which they will be known."""
        head = np.uint32(self.n).tobytes() + self.roster.astype("<i8").tobytes()
        own = lambda i: (
            self.public[self.graph.holders[i], 0].tobytes()
            + self.public[self.graph.partners[i], 1].tobytes()
        )
        bodies = {int(c): head + own(i) for i, c in enumerate(self.roster)}
        self.packets = np.zeros((self.n, self.H, PACKET_BYTES), np.uint8)
        self.hashes = np.zeros((self.n, 1 + 2 * self.H, keys.HASH_BYTES), np.uint8)
        self.alive = np.zeros(self.n, bool)
        for client, reader in self._ask(messages.SHARES, bodies):
            at = self.place[client]
            parts = self._parsed(
                client, reader, ("u1", *self.packets.shape[1:]), ("u1", *self.hashes.shape[1:])
            )
            if parts is not None:
                self.packets[at], self.hashes[at] = parts
                self.alive[at] = True
        self._enough(self.alive, "dealt out shares")

    def _add(self) -> Integers:
        """The sum of the masked vectors, each let go once it is added."""
        where = self.graph.columns()
        alive = messages.bits_of(self.alive)
        inbox = lambda i: self.packets[self.graph.holders[i], where[i]].tobytes()
        bodies = {int(self.roster[i]): alive + inbox(i) for i in np.flatnonzero(self.alive)}
        total = np.zeros(1 + self.length, self.dtype)
        self.summed: Bits = np.zeros(self.n, bool)
        for client, reader in self._ask(messages.VECTOR, bodies):
            parts = self._parsed(
                client, reader, ("u1", -(-self.H // 8)), (self.dtype.str, len(total))
            )
            if parts is None:
                continue
            at = self.place[client]
            for j in np.flatnonzero(np.unpackbits(parts[0], count=self.H)):
                self.flag("packet not opened", int(self.roster[self.graph.holders[at, j]]))
            total += parts[1]
            self.summed[at] = True
        self._enough(self.summed, "contributed")
        if not self.graph.connected(self.summed):
            raise SumFailed("the clients that are left fall into parts; raise fleet.neighbours")
        return total

    def _revealed(self) -> tuple[NDArray[np.uint32], Bits]:
        """Shares by whose secret and which holder, [n, H, 16], and which of them came and are true."""
        shares = np.zeros((self.n, self.H, shamir.LIMBS), np.uint32)
        true = np.zeros((self.n, self.H), bool)
        where, body = self.graph.columns(), messages.bits_of(self.summed)
        expected = np.where(self.summed, SEED, np.where(self.alive, KEY, NOTHING))
        for client, reader in self._ask(
            messages.REVEAL, dict.fromkeys(self.roster[self.summed].tolist(), body)
        ):
            parts = self._parsed(client, reader, ("u1", self.H), ("<u4", self.H, shamir.LIMBS))
            if parts is None:
                continue
            at = self.place[client]
            wards, columns = self.graph.holders[at], where[at]
            for j in np.flatnonzero(parts[0] != NOTHING):
                ward, column, kind = int(wards[j]), int(columns[j]), int(parts[0][j])
                known = (
                    self.hashes[ward, 2 * column + kind].tobytes()
                    if kind == expected[ward]
                    else b""
                )
                if keys.commit(parts[1][j].tobytes()) != known:
                    self.flag("false share", client)
                    continue
                shares[ward, column], true[ward, column] = parts[1][j], True
        return shares, true

    def _secrets(
        self, shares: NDArray[np.uint32], true: Bits
    ) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Seeds of those in the sum and mask keys of those that dropped out, by place."""
        t, out = self.config.shares(self.H), ({}, {})  # type: tuple[int, tuple[dict[int, bytes], dict[int, bytes]]]
        for place in np.flatnonzero(self.alive).tolist():
            have = np.flatnonzero(true[place])[:t]
            if len(have) < t:
                raise SumFailed(
                    f"{len(have)} shares of client {self.roster[place]} came; {t} are needed"
                )
            try:
                secret = shamir.join(tuple((have + 1).tolist()), shares[place, have])
            except shamir.BadShares:
                secret = b""
            mine = bool(self.summed[place])
            if not self._is(secret, place, mine):
                self.flag("false shares dealt out", int(self.roster[place]))
                raise SumFailed(
                    f"client {self.roster[place]} dealt out shares of nothing; leave it out"
                )
            out[0 if mine else 1][place] = secret
        return out

    def _is(self, secret: bytes, place: int, seed: bool) -> bool:
        if not secret or seed:
            return bool(secret) and keys.commit(secret) == self.hashes[place, 0].tobytes()
        return keys.Pair(secret).public == self.public[place, 1].tobytes()

    def _remove(self, total: Integers, dropped: int, secret: bytes) -> None:
        """Takes the masks in common with a client that dropped out from the sum of those who used them."""
        pair = keys.Pair(secret)
        for partner in self.graph.partners[dropped].tolist():
            if self.summed[partner]:
                key = pair.agree(self.public[partner, 1].tobytes(), self.context)
                keys.mask(total, key, minus=partner < dropped)  # of two, the first has added it

    def _enough(self, named: Bits, did: str) -> None:
        if named.sum() < self.least:
            raise SumFailed(
                f"{named.sum()} of {len(self.ids)} clients {did}; a sum needs {self.least}: nothing was opened"
            )
