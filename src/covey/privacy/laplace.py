"""The Laplace mechanism (Dwork et al., 2006): noise of scale sensitivity / epsilon, the sensitivity in the L1 norm.

Simulated draws are fast, in floating point and from the run's seed: the right distribution, but no protection
(Mironov, 2012). A device draws with `privacy/discrete.py` or `privacy/library.py`.
"""

import torch
from torch import Tensor

from covey.core.rng import Rng


def simulated(
    rng: Rng, scale: float, lengths_C: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """As many draws as each client asks for, end to end, [T]."""
    u_T = rng.ragged_uniform(lengths_C).values.sub_(0.5)
    size_T = (
        u_T.abs().mul_(-2).clamp_(min=2.0**-53 - 1).log1p_().mul_(-scale)
    )  # never quite the infinite tail
    return size_T.copysign_(u_T).to(dtype)
