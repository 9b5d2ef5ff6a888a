"""The exponential mechanism (McSherry and Talwar, 2007).

A candidate is chosen with a probability that grows as exp(epsilon * score / (2 * sensitivity)): here as the
largest of scores with Gumbel noise, for many clients at once. Simulated draws are from the run's seed; a device
draws with `privacy/library.py`.
"""

import torch
from torch import Tensor

from covey.core.checks import positive
from covey.core.rng import Rng

NUMBERS = 1 << 20  # noisy scores that are held at once


def weight_for(epsilon: float, sensitivity: float) -> float:
    """What scores are multiplied with."""
    positive("exponential mechanism", epsilon=epsilon, sensitivity=sensitivity)
    return epsilon / (2 * sensitivity)


def probabilities(score_CI: Tensor, epsilon: float, sensitivity: float) -> Tensor:
    """Of each candidate to be chosen, exactly."""
    return (weight_for(epsilon, sensitivity) * score_CI.double()).softmax(-1)


def simulated(
    rng: Rng, score_CI: Tensor, epsilon: float, sensitivity: float, draws: int = 1
) -> Tensor:
    """[C, draws] candidates, drawn independently; a score of -inf is never chosen."""
    weight, wide = weight_for(epsilon, sensitivity), score_CI.shape[1]
    at_once = max(1, NUMBERS // wide)  # draws; whoever else is there changes nothing
    out_CK = torch.empty(len(score_CI), draws, dtype=torch.long, device=score_CI.device)
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        for pick_B in torch.arange(len(score_CI), device=score_CI.device).split(
            max(1, NUMBERS // (count * wide))
        ):
            u_BKI = rng.fold(start).take(pick_B).uniform(count, wide).clamp_(min=2.0**-54)
            noisy_BKI = (
                u_BKI.log_().neg_().log_().neg_().add_(weight * score_CI[pick_B, None].double())
            )
            out_CK[pick_B, start : start + count] = noisy_BKI.argmax(2)
    return out_CK
