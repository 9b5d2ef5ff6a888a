"""The Gaussian mechanism, with the least noise that is (epsilon, delta)-private (Balle and Wang, 2018).

The sensitivity is in the L2 norm. Simulated draws are fast, in floating point and from the run's seed: the right
distribution, but no protection (Mironov, 2012). A device draws with `privacy/library.py`.
"""

import math

import torch
from torch import Tensor

from covey.contract.accountant import gaussian_multiplier
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.rng import Rng


def multiplier_for(epsilon: float, delta: float) -> float:
    """The noise's deviation over the sensitivity."""
    positive("Gaussian noise", epsilon=epsilon)
    if not 0 < delta < 1:
        raise CoveyError(f"Gaussian noise: delta = {delta}; it is over 0 and below 1, say 1e-6")
    return gaussian_multiplier(epsilon, delta)


def simulated(
    rng: Rng, deviation: float, lengths_C: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """As many draws as each client asks for, end to end, [T]."""
    radius_T = (
        rng.fold("radius").ragged_uniform(lengths_C).values.neg_().log1p_().mul_(-2).sqrt_()
    )  # Box-Muller
    turn_T = rng.fold("turn").ragged_uniform(lengths_C).values.mul_(2 * math.pi).cos_()
    return radius_T.mul_(turn_T).mul_(deviation).to(dtype)
