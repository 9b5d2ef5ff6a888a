"""What several private releases cost together: by adding up always, and tighter where that is known.

Composition. Basic: epsilons and deltas add up. Releases with Gaussian noise alone: k of them with noise
multiplier z are one with z / sqrt(k), whose epsilon is known exactly (Balle and Wang, 2018). Anything else: the
privacy loss distribution of dp-accounting, where that is installed; any epsilon-private release is at most as
telling as randomised response with that epsilon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

MOST = 1_000_000  # releases that are composed one by one; beyond, adding up has to do
WORTH = 0.99  # of the plain sum: what is not smaller than this is not worth a delta
EXACT, LIBRARY = "exact for Gaussian noise", "by dp-accounting"


@dataclass(frozen=True)
class Release:
    """Something that is released `count` times, each time with the same guarantee."""

    epsilon: float
    delta: float = 0.0
    multiplier: float = 0.0  # Gaussian noise over the sensitivity; 0: another kind of noise
    count: int = 1


def basic(releases: Sequence[Release]) -> tuple[float, float]:
    """Epsilon and delta of all together, by basic composition."""
    return sum(r.epsilon * r.count for r in releases), sum(r.delta * r.count for r in releases)


def tighter(releases: Sequence[Release], delta: float) -> tuple[float, str] | None:
    """A smaller epsilon at this delta, and how it was found; None where there is none to be had."""
    some = [r for r in releases if r.count]
    if (
        not some
        or not delta
        or any(math.isinf(r.epsilon) for r in some)
        or sum(r.count for r in some) > MOST
    ):
        return None
    if all(r.multiplier for r in some):
        together = sum(r.count / r.multiplier**2 for r in some) ** -0.5
        found, how = gaussian_epsilon(delta, together), EXACT
    elif not _large(some) and find_spec("dp_accounting"):
        found, how = _by_library(some, delta), LIBRARY
    else:
        return None
    total, slack = basic(some)
    return (found, how) if found < WORTH * total or slack > delta else None


def _large(releases: Sequence[Release]) -> bool:
    """Whether every release loses nearly its whole epsilon each time, so that losses do not cancel out.

    Randomised response loses epsilon * tanh(epsilon / 2) on average.
    """
    return all(
        not r.multiplier and not r.delta and math.tanh(r.epsilon / 2) > 0.95 for r in releases
    )


def _by_library(releases: Sequence[Release], delta: float) -> float:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    sizes = {r.epsilon for r in releases}
    step = min(sizes) / (
        1 if len(sizes) == 1 and not releases[0].multiplier else 50
    )  # losses of one size: no rounding
    parts = []
    for r in releases:
        if r.multiplier:
            one = pld.from_gaussian_mechanism(r.multiplier, value_discretization_interval=step)
        else:
            promise = common.DifferentialPrivacyParameters(r.epsilon, r.delta)
            one = pld.from_privacy_parameters(promise, value_discretization_interval=step)
        parts.append(one.self_compose(r.count))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(delta))


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """The smallest delta of Gaussian noise: `multiplier` is its deviation over the sensitivity (Theorem 8)."""
    from scipy.special import log_ndtr

    half, far = 0.5 / multiplier, epsilon * multiplier
    return max(0.0, math.exp(log_ndtr(half - far)) - math.exp(epsilon + log_ndtr(-half - far)))


def gaussian_epsilon(delta: float, multiplier: float) -> float:
    """The smallest epsilon at this delta."""
    low, high = 0.0, 1.0
    if gaussian_delta(0.0, multiplier) <= delta:
        return 0.0
    while gaussian_delta(high, multiplier) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, multiplier) > delta else (low, middle)
    return high


@lru_cache(maxsize=64)
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least noise that is (epsilon, delta)-private, over the sensitivity."""
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon, high) > delta:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) > delta else (low, middle)
    return high
