"""The Gaussian mechanism with the least (epsilon, delta)-private noise (Balle and Wang, 2018).

The sensitivity is in the L2 norm. Simulated draws use floating-point numbers and the run's seed:
they are fast and have the right distribution, but protect nothing (Mironov, 2012). A device draws
with `privacy/library.py`.
"""

import math

from torch import Tensor

from covey.contract.accountant import gaussian_multiplier
from covey.core import CoveyError, Rng, positive


def multiplier_for(epsilon: float, delta: float) -> float:
    """The standard deviation of the noise divided by the sensitivity."""
    positive("Gaussian noise", epsilon=epsilon)
    if not 0 < delta < 1:
        raise CoveyError(f"Gaussian noise: delta = {delta}; it is over 0 and below 1, say 1e-6")
    return gaussian_multiplier(epsilon, delta)


def simulated(rng: Rng, deviation: float, lengths_C: Tensor) -> Tensor:
    """`lengths_C` draws of each client by Box-Muller, end to end, [T], in double precision."""
    u_T = rng.fold("radius").ragged_uniform(lengths_C).values
    radius_T = u_T.neg_().log1p_().mul_(-2).sqrt_()
    turn_T = rng.fold("turn").ragged_uniform(lengths_C).values.mul_(2 * math.pi).cos_()
    return radius_T.mul_(turn_T).mul_(deviation)
