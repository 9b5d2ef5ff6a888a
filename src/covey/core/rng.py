"""Randomness as a pure function of (seed, round, client, purpose): no hidden generator state.

So a client draws the same numbers alone on a phone as inside a cohort of thousands, and a run
resumes without saved generators. The generator is SplitMix64 (Steele et al., 2014) with one
stream per client and purpose; integer arithmetic, so CPU and CUDA give the same bits.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from .ragged import Ragged, offsets_of

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed integer
WORD = (1 << 64) - 1
FEISTEL_ROUNDS = 6
SHORT = 256  # up to so many numbers are ordered by sorting
KERNEL = """
template <typename T> T mix(T word) {
    unsigned long long x = static_cast<unsigned long long>(word);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<T>(x ^ (x >> 31));
}
"""


def _shift(x: Tensor, n: int) -> Tensor:
    return (x >> n).bitwise_and_((1 << (64 - n)) - 1)


def mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64 words."""
    if x.is_cuda:
        return _on_cuda()(x)
    x = _shift(x, 30).bitwise_xor_(x).mul_(-4658895280553007687)
    x = _shift(x, 27).bitwise_xor_(x).mul_(-7723592293110705685)
    return _shift(x, 31).bitwise_xor_(x)


@cache
def _on_cuda() -> Callable[[Tensor], Tensor]:
    """One kernel instead of eleven, because starting a kernel costs as much as its arithmetic."""
    made: Callable[[Tensor], Tensor] = torch.cuda.jiterator._create_jit_fn(KERNEL)
    return made


def mixed(x: int) -> int:
    """`mix` of one number."""
    x &= WORD
    x = (x ^ (x >> 30)) * -4658895280553007687 & WORD
    x = (x ^ (x >> 27)) * -7723592293110705685 & WORD
    x ^= x >> 31
    return x - (x >> 63 << 64)


@dataclass(frozen=True)
class Rng:
    """Random streams, one per client; every draw returns one row per stream."""

    key_C: Tensor  # int64, the key of each stream
    home_C: Tensor  # int64, keys that are the same in every round

    @classmethod
    def of(cls, seed: int, round_number: int, ids_C: Tensor) -> "Rng":
        """The streams of some clients in one round."""
        home_C = mix(mixed(seed + 1) + GOLDEN * (ids_C.long() + 1))
        return cls(mix(home_C ^ mixed((round_number + 1) * GOLDEN)), home_C)

    @classmethod
    def server(cls, seed: int, round_number: int, purpose: str) -> "Rng":
        """The server's stream for one purpose: that of the id -1, since clients have ids from 0."""
        home = mixed(mixed(seed + 1))  # `of` and `fold` on numbers, which is faster than on tensors
        key = mixed(mixed(home ^ mixed((round_number + 1) * GOLDEN)) ^ _word(purpose))
        return cls(torch.tensor([key]), torch.tensor([home]))

    def fold(self, purpose: str | int) -> "Rng":
        """Other streams of the same clients, for one purpose."""
        return replace(self, key_C=mix(self.key_C ^ _word(purpose)))

    def folds(self, many: int) -> list["Rng"]:
        """fold(0), fold(1), ..., computed at once."""
        words = [_word(n) for n in range(many)]
        word_S = torch.tensor(words, dtype=torch.int64, device=self.key_C.device)
        return [replace(self, key_C=key_C) for key_C in mix(self.key_C ^ word_S[:, None])]

    def home(self, purpose: str) -> "Rng":
        """Streams that are the same in every round, for what a client draws once and keeps."""
        return replace(self, key_C=self.home_C).fold(purpose)

    def take(self, pick: Tensor) -> "Rng":
        return Rng(self.key_C[pick], self.home_C[pick])

    def streams(self, many: int) -> "Rng":
        """Makes many streams from the first one, for clients that the server invents."""
        words = self.bits(many)[0]
        return Rng(words, words)

    def to(self, device: torch.device | str) -> "Rng":
        return Rng(self.key_C.to(device), self.home_C.to(device))

    def bits(self, *shape: int) -> Tensor:
        """Words of 64 random bits, [C, *shape]."""
        counter = torch.arange(1, math.prod(shape) + 1, device=self.key_C.device)
        return mix(self.key_C[:, None] + GOLDEN * counter).view(len(self.key_C), *shape)

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), [C, *shape] in float64."""
        return _unit(self.bits(*shape))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers by the Box-Muller transform, [C, *shape]."""
        u = self.uniform(2, *shape)
        return (torch.sqrt(-2 * torch.log1p(-u[:, 0])) * torch.cos(2 * math.pi * u[:, 1])).to(dtype)

    def laplace(self, scale: float, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        u = self.uniform(*shape) - 0.5
        return (-scale * u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.5 - 2.0**-54))).to(dtype)

    def integers(self, high: int, *shape: int) -> Tensor:
        return (self.uniform(*shape) * high).long()

    def permutation(self, n: int) -> Tensor:
        """A random order of 0..n-1 for each stream, [C, n]."""
        return self.bits(n).argsort(dim=1, stable=True)

    def order_at(self, n: int, place_CK: Tensor) -> Tensor:
        """The entries [C, K] at some places of a random order of 0..n-1, without the others.

        A Feistel network (Luby and Rackoff, 1988) permutes the numbers below the next power of 4; a
        result of n or more is permuted again until it is below n. Up to `SHORT` numbers are sorted,
        because the network cannot produce every order of few numbers.
        """
        if n <= SHORT:
            return self.permutation(n).gather(1, place_CK)
        half = ((n - 1).bit_length() + 1) // 2
        low = (1 << half) - 1
        keys_SC1 = torch.stack([each.key_C for each in self.folds(FEISTEL_ROUNDS)])[..., None]

        def shuffled(x: Tensor) -> Tensor:
            left, right = x >> half, x & low
            for key_C1 in keys_SC1:
                left, right = right, left ^ (mix(key_C1 + GOLDEN * (right + 1)) & low)
            return left << half | right

        found_CK = shuffled(place_CK)
        while (found_CK >= n).any():
            found_CK = torch.where(found_CK < n, found_CK, shuffled(found_CK))
        return found_CK

    def ragged_bits(self, lengths_C: Tensor) -> Ragged:
        """A list of random words per client; its first k words do not depend on its length."""
        offsets = offsets_of(lengths_C)
        total = int(offsets[-1])
        key_T = self.key_C.repeat_interleave(lengths_C, output_size=total)
        start_T = offsets[:-1].repeat_interleave(lengths_C, output_size=total)
        place_T = torch.arange(total, device=offsets.device) - start_T
        return Ragged(mix(key_T + GOLDEN * (place_T + 1)), offsets)

    def ragged_uniform(self, lengths_C: Tensor) -> Ragged:
        words = self.ragged_bits(lengths_C)
        return words.like(_unit(words.values))


def _unit(words: Tensor) -> Tensor:
    return _shift(words, 11).double() * 2.0**-53


def _word(purpose: str | int) -> int:
    return zlib.crc32(str(purpose).encode()) * GOLDEN & 0x7FFFFFFFFFFFFFFF
