"""Who shares a mask with whom, and who holds whose secrets: a public function of the sum and its roster.

Clients stand on a ring in an order that a hash decides. Partners stand at `neighbours / 2` steps to
either side, 1 and others that the hash decides; holders stand nearest. So both relations are mutual
and regular, as in Bell et al. (CCS 2020), and every party computes them for itself.
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
    partners: Places  # [n, K]
    holders: Places  # [n, H]

    def columns(self) -> Places:
        """Where each client stands in the list of each of its holders, [n, H]."""
        n, many = self.holders.shape
        mine = np.arange(n)[:, None]
        pairs = (mine * n + self.holders).ravel()  # ascending
        return np.searchsorted(pairs, self.holders * n + mine) - self.holders * many

    def connected(self, alive: NDArray[np.bool_]) -> bool:
        """Whether those who are left hang together; parts that do not would be opened as smaller sums."""
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
    """`roster`: the ids of all who sent keys, ascending, as little endian int64."""
    n = len(roster) // 8
    seed = hashlib.sha256(b"covey secure sum graph" + context + roster).digest()
    ring = _order(seed + b"ring", n)
    place = np.empty(n, np.int64)
    place[ring] = np.arange(n)
    steps = 2 + _order(seed + b"steps", max((n - 1) // 2 - 1, 0))  # beyond the step of 1
    partners = _around(
        np.concatenate([[1], steps])[: config.neighbours // 2], config.neighbours, ring, place
    )
    return Graph(
        partners, _around(np.arange(1, config.holders // 2 + 1), config.holders, ring, place)
    )


def _around(steps: Places, many: int, ring: Places, place: Places) -> Places:
    n = len(ring)
    both = np.arange(1, n) if many >= n - 1 else np.concatenate([steps, -steps])
    table = np.sort(ring[(place[:, None] + both) % n], axis=1)
    table.flags.writeable = False  # many share it
    return table


def _order(seed: bytes, n: int) -> Places:
    """A permutation; a hash gives the same one on every machine and with every library."""
    keys = np.frombuffer(hashlib.shake_256(seed).digest(8 * n), "<u8")
    return np.argsort(keys, kind="stable")
