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
TURNS = 6  # of a Feistel network
SHORT = 256  # numbers that are ordered by sorting
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
    """One kernel instead of eleven: a round draws a hundred times, and each start costs as much as the arithmetic."""
    made: Callable[[Tensor], Tensor] = torch.cuda.jiterator._create_jit_fn(KERNEL)
    return made


def mixed(x: int) -> int:
    """The same of one number."""
    x &= WORD
    x = (x ^ (x >> 30)) * -4658895280553007687 & WORD
    x = (x ^ (x >> 27)) * -7723592293110705685 & WORD
    x ^= x >> 31
    return x - (x >> 63 << 64)


@dataclass(frozen=True)
class Rng:
    key_C: Tensor  # [C] int64, one stream per client
    home_C: Tensor  # [C] the same in every round

    @classmethod
    def of(cls, seed: int, round_number: int, ids_C: Tensor) -> "Rng":
        home_C = mix(mixed(seed + 1) + GOLDEN * (ids_C.long() + 1))
        return cls(mix(home_C ^ mixed((round_number + 1) * GOLDEN)), home_C)

    @classmethod
    def server(cls, seed: int, round_number: int, purpose: str) -> "Rng":
        """The server's own stream; clients have ids from 0 up, the server has -1."""
        home = mixed(
            mixed(seed + 1)
        )  # `of` and `fold` for the id -1, on numbers: a round asks a dozen times
        key = mixed(mixed(home ^ mixed((round_number + 1) * GOLDEN)) ^ _word(purpose))
        return cls(torch.tensor([key]), torch.tensor([home]))

    def fold(self, purpose: str | int) -> "Rng":
        return replace(self, key_C=mix(self.key_C ^ _word(purpose)))

    def folds(self, many: int) -> list["Rng"]:
        """fold(0), fold(1), ...: one draw of keys for all of them."""
        words = torch.tensor(
            [_word(n) for n in range(many)], dtype=torch.int64, device=self.key_C.device
        )
        keys_SC = mix(self.key_C ^ words[:, None])
        return [replace(self, key_C=key_C) for key_C in keys_SC]

    def home(self, purpose: str) -> "Rng":
        """Draws that a client makes once and repeats in every round."""
        return replace(self, key_C=self.home_C).fold(purpose)

    def take(self, pick: Tensor) -> "Rng":
        return Rng(self.key_C[pick], self.home_C[pick])

    def streams(self, many: int) -> "Rng":
        """As many streams out of this one: for clients that the server makes up."""
        words = self.bits(many)[0]
        return Rng(words, words)

    def to(self, device: torch.device | str) -> "Rng":
        return Rng(self.key_C.to(device), self.home_C.to(device))

    def bits(self, *shape: int) -> Tensor:
        """[C, *shape] words of 64 random bits."""
        counter = torch.arange(1, math.prod(shape) + 1, device=self.key_C.device)
        return mix(self.key_C[:, None] + GOLDEN * counter).view(len(self.key_C), *shape)

    def uniform(self, *shape: int) -> Tensor:
        """[C, *shape] float64 in [0, 1)."""
        return _unit(self.bits(*shape))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        u = self.uniform(2, *shape)  # Box-Muller
        return (torch.sqrt(-2 * torch.log1p(-u[:, 0])) * torch.cos(2 * math.pi * u[:, 1])).to(dtype)

    def laplace(self, scale: float, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        u = self.uniform(*shape) - 0.5
        return (-scale * u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.5 - 2.0**-54))).to(dtype)

    def integers(self, high: int, *shape: int) -> Tensor:
        return (self.uniform(*shape) * high).long()

    def permutation(self, n: int) -> Tensor:
        """[C, n]: an order of 0..n-1 for each stream."""
        return self.bits(n).argsort(dim=1, stable=True)

    def order_at(self, n: int, place_CK: Tensor) -> Tensor:
        """[C, K]: what stands at some places of an order of 0..n-1 that is each stream's own, without the rest of it.

        A Feistel network (Luby and Rackoff, 1988) orders the next power of 4; what lies beyond n is passed
        through again, until it does not. Of few numbers it would not make every order.
        """
        if n <= SHORT:
            return self.permutation(n).gather(1, place_CK)
        half = ((n - 1).bit_length() + 1) // 2
        low = (1 << half) - 1
        keys_TC1 = torch.stack([each.key_C for each in self.folds(TURNS)])[..., None]

        def shuffled(x: Tensor) -> Tensor:
            left, right = x >> half, x & low
            for key_C1 in keys_TC1:
                left, right = right, left ^ (mix(key_C1 + GOLDEN * (right + 1)) & low)
            return left << half | right

        found_CK = shuffled(place_CK)
        while (found_CK >= n).any():
            found_CK = torch.where(found_CK < n, found_CK, shuffled(found_CK))
        return found_CK

    def ragged_bits(self, lengths_C: Tensor) -> Ragged:
        """As many words as each client asks for; the first k are the same whatever it asks for."""
        offsets = offsets_of(lengths_C)
        total = int(offsets[-1])
        wide = lambda x_C: x_C.repeat_interleave(lengths_C, output_size=total)
        place = torch.arange(total, device=offsets.device) - wide(offsets[:-1])
        return Ragged(mix(wide(self.key_C) + GOLDEN * (place + 1)), offsets)

    def ragged_uniform(self, lengths_C: Tensor) -> Ragged:
        words = self.ragged_bits(lengths_C)
        return words.like(_unit(words.values))


def _unit(words: Tensor) -> Tensor:
    return _shift(words, 11).double() * 2.0**-53


def _word(purpose: str | int) -> int:
    return zlib.crc32(str(purpose).encode()) * GOLDEN & 0x7FFFFFFFFFFFFFFF
