"""Laplace noise that is safe on a real device: in whole numbers, from the system's entropy.

A double drawn as -b log(u) leaves gaps that reveal what it was added to (Mironov, 2012). Here the
vector is rounded towards zero to a grid of steps 2^-k, so that it is never lengthened, clipped
there in exact arithmetic, and gets discrete Laplace noise drawn without rounding (Canonne, Kamath
and Steinke, 2020, Algorithm 2). The time that a draw takes is not hidden.
"""

import math
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

FINE = 16  # bits of a clipped vector's largest possible coordinate
Below = Callable[[int], int]  # draws a uniform whole number from 0 to below its argument


def released(u_CD: Tensor, clip: float, epsilon: float, below: Below = secrets.randbelow) -> Tensor:
    """Clips rows to an L1 norm and adds noise from `below`: each row alone is `epsilon`-private."""
    step = 2.0 ** (math.floor(math.log2(clip)) - FINE)
    most = int(Fraction(clip) / Fraction(step))
    rows = [on_grid(row, step, most) for row in u_CD.detach().double().cpu().tolist()]
    noisy = [[z + discrete_laplace(scale_of(most, epsilon), below) for z in row] for row in rows]
    return (torch.tensor(noisy, dtype=torch.float64).view(u_CD.shape) * step).to(u_CD)


def scale_of(most: int, epsilon: float) -> Fraction:
    """The scale of the noise in steps: vectors of at most `most` steps differ by twice as many."""
    return 2 * most / Fraction(epsilon)


def on_grid(row: Sequence[float], step: float, most: int) -> list[int]:
    """Rounds a row to whole steps, at most `most` in all; NaN and infinity become 0."""
    whole = [int(Fraction(x) / Fraction(step)) if math.isfinite(x) else 0 for x in row]
    total = sum(map(abs, whole))
    if total <= most:
        return whole
    return [(-1 if z < 0 else 1) * (abs(z) * most // total) for z in whole]


def discrete_laplace(scale: Fraction, below: Below = secrets.randbelow) -> int:
    """A whole number x with probability proportional to exp(-|x| / scale), exactly."""
    t, s = scale.numerator, scale.denominator
    while True:
        u = below(t)
        if not bernoulli_exp(u, t, below):
            continue
        v = 0
        while bernoulli_exp(1, 1, below):
            v += 1
        size, minus = (u + t * v) // s, below(2)
        if size or not minus:  # zero has one sign only
            return -size if minus else size


def bernoulli_exp(top: int, bottom: int, below: Below = secrets.randbelow) -> bool:
    """True with probability exp(-top / bottom), for a quotient from 0 to 1."""
    k = 1
    while below(bottom * k) < top:
        k += 1
    return k % 2 == 1
