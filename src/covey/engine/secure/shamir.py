"""Secret sharing (Shamir, 1979): any `t` shares of a secret give it back, fewer disclose nothing.

A secret has 32 bytes. Each 16 bits of it are the constant term of a polynomial over the integers
modulo 2^31 - 1, and a share is the values of all 16 polynomials at one point. So all arithmetic
fits into 64 bits and runs over all points at once.
"""

import secrets
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

PRIME = (1 << 31) - 1
LIMBS = 16  # of a secret
SECRET_BYTES, SHARE_BYTES = 2 * LIMBS, 4 * LIMBS


class BadShares(ValueError):
    """Shares that do not belong to one secret."""


def split(secrets_SB: list[bytes], n: int, t: int) -> NDArray[np.uint32]:
    """Shares of S secrets at the points 1..n, [n, S, 16]; any `t` give the secrets back."""
    limbs = np.stack([np.frombuffer(s, "<u2") for s in secrets_SB]).astype(np.uint64)
    random = np.frombuffer(secrets.token_bytes(8 * (t - 1) * limbs.size), "<u8") % PRIME
    x = np.arange(1, n + 1, dtype=np.uint64)[:, None, None]
    y = np.zeros((n, *limbs.shape), np.uint64)
    for coefficient in (*random.reshape(t - 1, *limbs.shape), limbs):  # Horner's rule
        y = (y * x + coefficient) % PRIME
    return y.astype(np.uint32)


def join(points: tuple[int, ...], shares: NDArray[np.uint32]) -> bytes:
    """The secret from its shares [t, 16] at these points; a wrong one if a share is false."""
    terms = (_weights(points)[:, None] * shares.astype(np.uint64)) % PRIME
    limbs = terms.sum(0) % PRIME
    if (limbs >> 16).any():
        raise BadShares("the shares do not belong to one secret")
    return limbs.astype("<u2").tobytes()


@lru_cache(maxsize=64)
def _weights(points: tuple[int, ...]) -> NDArray[np.uint64]:
    """The weights of Lagrange interpolation at 0."""
    x = np.array(points, dtype=np.int64)
    above, below = np.ones(len(x), np.int64), np.ones(len(x), np.int64)
    for j, other in enumerate(points):
        mine = np.arange(len(x)) == j
        above = above * np.where(mine, 1, other) % PRIME
        below = below * np.where(mine, 1, (other - x) % PRIME) % PRIME
    inverse = [pow(int(b), -1, PRIME) for b in below]
    return (above * np.array(inverse, dtype=np.int64) % PRIME).astype(np.uint64)
