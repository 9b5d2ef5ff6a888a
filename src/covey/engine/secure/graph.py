"""Which clients share masks, and which hold shares of whose secrets.

Both are a public function of the sum's name and its roster, which every party computes for itself.
A hash decides the order of the clients on a ring. A client's partners are at `neighbours / 2`
distances to either side, at 1 and at others that the hash decides; its holders are the nearest
ones. So both relations are mutual and regular, as in Bell et al. (CCS 2020).
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .settings import FleetConfig

Places = NDArray[np.int64]  # positions in the roster


@dataclass(frozen=True)
class Graph:
    """The relations of all clients, as ascending positions in the roster."""

    partners: Places  # [n, K]
    holders: Places  # [n, H]

    def columns(self) -> Places:
        """The column of each client in the list of each of its holders, [n, H]."""
        n, many = self.holders.shape
        mine = np.arange(n)[:, None]
        pairs = (mine * n + self.holders).ravel()  # ascending
        return np.searchsorted(pairs, self.holders * n + mine) - self.holders * many

    def connected(self, alive: NDArray[np.bool_]) -> bool:
        """Whether partners join all clients that are left; else there would be several sums."""
        if not alive.any():
            return False
        seen = np.zeros_like(alive)
        front = np.flatnonzero(alive)[:1]
        while len(front):
            seen[front] = True
            near = np.unique(self.partners[front])
            front = near[alive[near] & ~seen[near]]
        return bool((seen == alive).all())


@lru_cache(maxsize=4)
def graph_of(context: bytes, roster: bytes, config: FleetConfig) -> Graph:
    """The graph of a sum. `roster` has the ids of all that sent keys, ascending, as int64 bytes."""
    n = len(roster) // 8
    seed = hashlib.sha256(b"covey secure sum graph" + context + roster).digest()
    ring = _order(seed + b"ring", n)
    place = np.empty(n, np.int64)
    place[ring] = np.arange(n)
    steps = 2 + _order(seed + b"steps", max((n - 1) // 2 - 1, 0))  # beyond the step of 1
    near, mixed = np.arange(1, config.holders // 2 + 1), np.concatenate([[1], steps])
    partners = _around(mixed[: config.neighbours // 2], config.neighbours, ring, place)
    return Graph(partners, _around(near, config.holders, ring, place))


def _around(steps: Places, many: int, ring: Places, place: Places) -> Places:
    """The clients at these distances to either side, or all others if they are not more."""
    n = len(ring)
    both = np.arange(1, n) if many >= n - 1 else np.concatenate([steps, -steps])
    table = np.sort(ring[(place[:, None] + both) % n], axis=1)
    table.flags.writeable = False  # many share it
    return table


def _order(seed: bytes, n: int) -> Places:
    """A permutation by a hash, which is the same on every machine and with every library."""
    keys = np.frombuffer(hashlib.shake_256(seed).digest(8 * n), "<u8")
    return np.argsort(keys, kind="stable")
