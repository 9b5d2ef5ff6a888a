"""The privacy accountant: how much several private releases spend together.

Basic composition adds epsilons and deltas up. Where all noise is Gaussian, k releases with noise
multiplier z are one release with z / sqrt(k), whose epsilon is known exactly (Balle and Wang,
2018). For other releases, dp-accounting composes privacy loss distributions, if it is installed; it
treats an epsilon-private release as randomised response with that epsilon, the worst case.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib.util import find_spec

MAX_COMPOSED = 1_000_000  # of more releases, only the basic composition is computed
WORTH = 0.99  # a total above this share of the basic one is not worth a delta
EXACT, LIBRARY = "exact for Gaussian noise", "by dp-accounting"


@dataclass(frozen=True)
class Release:
    """Something that is released `count` times, each time with the same guarantee."""

    epsilon: float
    delta: float = 0.0
    multiplier: float = 0.0  # deviation of Gaussian noise over the sensitivity; 0: other noise
    count: int = 1


def basic(releases: Sequence[Release]) -> tuple[float, float]:
    """The epsilon and delta of all releases together, by basic composition."""
    return sum(r.epsilon * r.count for r in releases), sum(r.delta * r.count for r in releases)


def tighter(releases: Sequence[Release], delta: float) -> tuple[float, str] | None:
    """A smaller epsilon than by basic composition at a total `delta`, and its method; or None."""
    made = [r for r in releases if r.count]
    finite = made and delta and not any(math.isinf(r.epsilon) for r in made)
    if not finite or sum(r.count for r in made) > MAX_COMPOSED:
        return None
    if all(r.multiplier for r in made):
        together = sum(r.count / r.multiplier**2 for r in made) ** -0.5
        found, how = gaussian_epsilon(delta, together), EXACT
    elif not _large(made) and find_spec("dp_accounting"):
        found, how = _by_library(made, delta), LIBRARY
    else:
        return None
    total, total_delta = basic(made)
    return (found, how) if found < WORTH * total or total_delta > delta else None


def _large(releases: Sequence[Release]) -> bool:
    """Whether every release loses nearly its whole epsilon each time, so that no loss cancels out.

    Randomised response loses epsilon * tanh(epsilon / 2) on average.
    """
    pure = not any(r.multiplier or r.delta for r in releases)
    return pure and all(math.tanh(r.epsilon / 2) > 0.95 for r in releases)


def _by_library(releases: Sequence[Release], delta: float) -> float:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    sizes = {r.epsilon for r in releases}
    alike = len(sizes) == 1 and not releases[0].multiplier  # then no loss has to be rounded
    step = min(sizes) / (1 if alike else 50)
    parts = []
    for r in releases:
        if r.multiplier:
            one = pld.from_gaussian_mechanism(r.multiplier, value_discretization_interval=step)
        else:
            promise = common.DifferentialPrivacyParameters(r.epsilon, r.delta)
            one = pld.from_privacy_parameters(promise, value_discretization_interval=step)
        parts.append(one.self_compose(r.count))
    whole = reduce(lambda one, two: one.compose(two), parts)
    return float(whole.get_epsilon_for_delta(delta))


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """The smallest delta of Gaussian noise with this multiplier (Balle and Wang, Theorem 8)."""
    from scipy.special import log_ndtr

    half, far = 0.5 / multiplier, epsilon * multiplier
    return max(0.0, math.exp(log_ndtr(half - far)) - math.exp(epsilon + log_ndtr(-half - far)))


def gaussian_epsilon(delta: float, multiplier: float) -> float:
    """The smallest epsilon of Gaussian noise with this multiplier, at this delta."""
    if gaussian_delta(0.0, multiplier) <= delta:
        return 0.0
    return _smallest(lambda epsilon: gaussian_delta(epsilon, multiplier) <= delta)


@lru_cache(maxsize=64)
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The smallest multiplier of Gaussian noise that is (epsilon, delta)-private."""
    return _smallest(lambda multiplier: gaussian_delta(epsilon, multiplier) <= delta)


def _smallest(suffices: Callable[[float], bool]) -> float:
    """The smallest positive number that suffices, by bisection."""
    low, high = 0.0, 1.0
    while not suffices(high):
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
