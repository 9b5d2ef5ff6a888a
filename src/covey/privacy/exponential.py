"""The exponential mechanism (McSherry and Talwar, 2007).

A candidate is chosen with probability proportional to exp(epsilon * score / (2 * sensitivity)), as
the largest of the scores with Gumbel noise, for many clients at once. Simulated draws use the run's
seed; a device draws with `privacy/library.py`.
"""

import torch
from torch import Tensor

from covey.core import Rng, positive

NUMBERS = 1 << 20  # noisy scores that are held at once


def weight_for(epsilon: float, sensitivity: float) -> float:
    """The factor of the scores in the exponent."""
    positive("exponential mechanism", epsilon=epsilon, sensitivity=sensitivity)
    return epsilon / (2 * sensitivity)


def probabilities(score_CI: Tensor, epsilon: float, sensitivity: float) -> Tensor:
    """The exact probability that each candidate is chosen."""
    return (weight_for(epsilon, sensitivity) * score_CI.double()).softmax(-1)


def simulated(
    rng: Rng, score_CI: Tensor, epsilon: float, sensitivity: float, draws: int = 1
) -> Tensor:
    """Draws candidates independently, [C, draws], each with the privacy budget `epsilon`.

    Candidates with a score of -inf are never chosen. Scores change by at most `sensitivity`.
    """
    weight, wide = weight_for(epsilon, sensitivity), score_CI.shape[1]
    at_once = max(1, NUMBERS // wide)  # independent of the other clients
    out_CK = torch.empty(len(score_CI), draws, dtype=torch.long, device=score_CI.device)
    every_C = torch.arange(len(score_CI), device=score_CI.device)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        for pick_B in every_C.split(max(1, NUMBERS // (count * wide))):
            u_BKI = rng.fold(start).take(pick_B).uniform(count, wide).clamp_(min=2.0**-54)
            gumbel_BKI = u_BKI.log_().neg_().log_().neg_()
            noisy_BKI = gumbel_BKI.add_(weight * score_CI[pick_B, None].double())
            out_CK[pick_B, start : start + count] = noisy_BKI.argmax(2)
    return out_CK
