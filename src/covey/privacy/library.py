"""Noise for real devices by OpenDP, a vetted library that draws exactly from the system's entropy.

It needs the optional extra `privacy`, and about 30 microseconds for a number. Each call asks the
library for the epsilon that it proves for its noise, and releases nothing if that is too much.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from covey.core.errors import CoveyError

INSTALL = "pip install 'covey[privacy]'"
Numbers = Sequence[float]
ROUNDING = 1e-9  # relative error of an epsilon, by floats on the way to the library and back


def check_installed(who: str) -> None:
    """Refuses to start without OpenDP; `who` names the part that needs it."""
    if not find_spec("opendp"):
        raise CoveyError(f"{who}: noise = 'opendp' needs OpenDP, which is not installed; {INSTALL}")


def laplace(values: Numbers, scale: float, sensitivity: float, epsilon: float) -> list[float]:
    """Adds Laplace noise, `epsilon`-private for vectors that differ by `sensitivity` in L1."""
    dp = _library()
    release = dp.m.make_laplace(_floats(dp), dp.l1_distance(T=float), scale=scale)
    _promise(release.map(sensitivity), epsilon)
    return list(release(list(values)))


def gaussian(values: Numbers, deviation: float, sensitivity: float) -> list[float]:
    """Adds Gaussian noise, with the privacy loss of a Gaussian of this deviation."""
    dp = _library()
    release = dp.m.make_gaussian(_floats(dp), dp.l2_distance(T=float), scale=deviation)
    _promise(release.map(sensitivity), (sensitivity / deviation) ** 2 / 2)  # zero-concentrated
    return list(release(list(values)))


def choose(scores: Numbers, epsilon: float, sensitivity: float, draws: int = 1) -> list[int]:
    """Choices of the exponential mechanism, each `epsilon`-private."""
    dp = _library()
    measure = dp.zero_concentrated_divergence()  # for which the library uses Gumbel noise
    scale, metric = 2 * sensitivity / epsilon, dp.linf_distance(T=float)
    noisy = dp.m.make_noisy_max(_floats(dp), metric, measure, scale=scale)
    _promise(noisy.map(sensitivity), epsilon**2 / 8)
    given = list(scores)
    return [int(noisy(given)) for _ in range(draws)]


def _library() -> Any:
    check_installed("device")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def _floats(dp: Any) -> Any:
    return dp.vector_domain(dp.atom_domain(T=float, nan=False))


def _promise(proven: float, promised: float) -> None:
    if not proven <= promised * (1 + ROUNDING):
        wrong = f"OpenDP proves {proven:g} for noise that promised {promised:g}"
        raise CoveyError(f"{wrong}; more noise is needed")
