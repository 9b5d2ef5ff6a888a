"""The Laplace mechanism (Dwork et al., 2006): noise of scale sensitivity / epsilon, in the L1 norm.

Simulated draws use floating-point numbers and the run's seed: they are fast and have the right
distribution, but protect nothing (Mironov, 2012). A device draws with `privacy/discrete.py` or
`privacy/library.py`.
"""

from torch import Tensor

from covey.core.rng import Rng


def simulated(rng: Rng, scale: float, lengths_C: Tensor) -> Tensor:
    """`lengths_C` draws of each client, end to end, [T], in double precision."""
    u_T = rng.ragged_uniform(lengths_C).values.sub_(0.5)
    below_T = u_T.abs().mul_(-2).clamp_(min=2.0**-53 - 1)  # so that every draw is finite
    size_T = below_T.log1p_().mul_(-scale)
    return size_T.copysign_(u_T)
