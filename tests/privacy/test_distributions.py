"""The distribution of draws, and the bound on neighbouring inputs.

There are a million draws of each of our mechanisms, and ten thousand of the library's. Seeds are
fixed, so a test passes always or never. A fit is rejected at 1 in 1,000, a privacy bound at 1 in
10,000 over all bins together; each audit is also shown to find noise that is too small.
"""

import math
import random
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import special, stats

from covey.contract.accountant import gaussian_delta, gaussian_epsilon, gaussian_multiplier
from covey.core.errors import CoveyError
from covey.core.rng import Rng
from covey.privacy import exponential, gaussian, laplace, library
from covey.privacy.discrete import discrete_laplace

MANY = 1_000_000
FIT, RISK = 1e-3, 1e-4
SCORES = torch.linspace(0, 1, 12)[None] ** 2  # of twelve candidates; a neighbour's are reversed


def ours(kind: str, spread: float, seed: int = 0, many: int = MANY) -> np.ndarray:
    """From a thousand clients, as a run draws them."""
    draw = laplace.simulated if kind == "laplace" else gaussian.simulated
    lengths = torch.full((1000,), many // 1000)
    return draw(Rng.of(seed, 1, torch.arange(1000)), spread, lengths).numpy()


def bounds(count: np.ndarray, total: int, tests: int) -> tuple[np.ndarray, np.ndarray]:
    """Clopper-Pearson limits of a probability, together right with probability 1 - RISK."""
    alpha = RISK / (2 * tests)
    low = np.where(count > 0, stats.beta.ppf(alpha, count, total - count + 1), 0.0)
    return low, np.where(count < total, stats.beta.ppf(1 - alpha, count + 1, total - count), 1.0)


def loss_at_least(one: np.ndarray, other: np.ndarray) -> float:
    """A privacy loss that the counts of the same events under two inputs prove."""
    events = 2 * len(one)
    (low, high), (low2, high2) = bounds(one, one.sum(), events), bounds(other, other.sum(), events)
    with np.errstate(divide="ignore"):
        return float(max(np.log(low / high2).max(), np.log(low2 / high).max()))


def binned(x: np.ndarray, y: np.ndarray, bins: int = 60) -> tuple[np.ndarray, np.ndarray]:
    edges = np.quantile(np.concatenate([x, y]), np.linspace(0, 1, bins + 1)[1:-1])

    def count(z: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(edges, z), minlength=bins)

    return count(x), count(y)


def fit(x: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Kolmogorov and Smirnov's p value, of sorted draws."""
    p, n = cdf(x), len(x)
    far = max((np.arange(1, n + 1) / n - p).max(), (p - np.arange(n) / n).max())
    return float(special.kolmogorov(math.sqrt(n) * far))


def test_laplace_draws() -> None:
    x = np.sort(ours("laplace", 0.7))
    assert fit(x, stats.laplace(scale=0.7).cdf) > FIT
    assert fit(x, stats.laplace(scale=0.71).cdf) < FIT  # it can tell


def test_laplace_keeps_its_epsilon() -> None:
    """Inputs 0 and 2, epsilon 1.5: the counts prove nearly that much, and no more."""
    scale = 2.0 / 1.5
    proven = loss_at_least(*binned(ours("laplace", scale, 1), 2 + ours("laplace", scale, 2)))
    assert 1.4 < proven <= 1.5
    assert (
        loss_at_least(*binned(ours("laplace", 0.9 * scale, 1), 2 + ours("laplace", 0.9 * scale, 2)))
        > 1.5
    )


def test_gaussian_draws() -> None:
    x = np.sort(ours("gaussian", 0.7))
    assert fit(x, stats.norm(scale=0.7).cdf) > FIT
    assert fit(x, stats.norm(scale=0.705).cdf) < FIT


def excess(deviation: float, epsilon: float) -> tuple[float, float]:
    """Limits of delta: by how much one input makes an event likelier than e^epsilon allows.

    The event is where the first half of the draws says so; the second half measures it.
    """
    x, y = ours("gaussian", deviation, 1), 1 + ours("gaussian", deviation, 2)
    half, edges = MANY // 2, np.linspace(-3 * deviation, 1 + 3 * deviation, 200)

    def count(z: np.ndarray) -> np.ndarray:
        return np.bincount(np.searchsorted(edges, z), minlength=201)

    likelier = count(x[:half]) > math.exp(epsilon) * count(y[:half])
    events = [np.array([likelier[np.searchsorted(edges, z[half:])].sum()]) for z in (x, y)]
    (low, high), (low2, high2) = (bounds(n, half, 2) for n in events)
    return float(low[0] - math.exp(epsilon) * high2[0]), float(
        high[0] - math.exp(epsilon) * low2[0]
    )


def test_gaussian_keeps_its_epsilon_and_delta() -> None:
    """Inputs 0 and 1: delta is as requested, and not much less; with less noise it is more."""
    deviation = gaussian.multiplier_for(1.0, 0.02)
    low, high = excess(deviation, 1.0)
    assert 0.015 < low <= 0.02 < high
    assert excess(0.9 * deviation, 1.0)[0] > 0.02


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-9), (60.0, 1e-5)]
)
def test_gaussian_noise_is_the_least(epsilon: float, delta: float) -> None:
    z = gaussian_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, z) == pytest.approx(delta, rel=1e-6)
    assert gaussian_epsilon(delta, z) == pytest.approx(epsilon, rel=1e-9)
    # Theorem 8 as an integral: the mass by which one density exceeds e^epsilon times the other.
    edge = 0.5 - epsilon * z * z
    mass = stats.norm.cdf(edge, 0, z) - math.exp(epsilon) * stats.norm.cdf(edge, 1, z)
    assert mass == pytest.approx(delta, rel=1e-4)


def chosen(scores: torch.Tensor, epsilon: float, seed: int) -> np.ndarray:
    """Counts of the candidates, from a thousand clients."""
    rng = Rng.of(seed, 1, torch.arange(1000))
    draws = exponential.simulated(rng, scores.expand(1000, -1), epsilon, 1.0, MANY // 1000)
    return torch.bincount(draws.flatten(), minlength=scores.shape[1]).numpy()


def test_exponential_draws() -> None:
    """Probabilities by the formula, and for two candidates by hand: e / (1 + e)."""
    p = exponential.probabilities(SCORES, 3.0, 1.0)[0].numpy()
    weight = np.exp(1.5 * SCORES[0].double().numpy())
    np.testing.assert_allclose(p, weight / weight.sum())
    assert stats.chisquare(chosen(SCORES, 3.0, 0), p * MANY).pvalue > FIT
    assert stats.chisquare(chosen(SCORES, 3.05, 0), p * MANY).pvalue < FIT
    two = exponential.probabilities(torch.tensor([[0.0, 1.0]]), 2.0, 1.0)
    assert float(two[0, 1]) == pytest.approx(math.e / (1 + math.e))


def test_exponential_keeps_its_epsilon() -> None:
    """Scores change by at most 1: the counts agree with epsilon, and reveal a low sensitivity."""
    apart = [chosen(SCORES, 2.0, 1), chosen(SCORES.flip(1), 2.0, 2)]
    assert 0.8 < loss_at_least(*apart) <= 2.0
    exact = [exponential.probabilities(s, 2.0, 1.0) for s in (SCORES, SCORES.flip(1))]
    assert float((exact[0] / exact[1]).log().abs().max()) <= 2.0
    wide = [chosen(5 * SCORES, 2.0, 1), chosen(5 * SCORES.flip(1), 2.0, 2)]
    assert loss_at_least(*wide) > 2.0


def test_exponential_draws_do_not_depend_on_company() -> None:
    rng = Rng.of(3, 1, torch.arange(40))
    together = exponential.simulated(rng, SCORES.expand(40, -1), 1.0, 1.0, 5)
    alone = exponential.simulated(rng.take(torch.tensor([17])), SCORES, 1.0, 1.0, 5)
    assert torch.equal(together[17:18], alone)
    assert torch.equal(
        together[:, :2], exponential.simulated(rng, SCORES.expand(40, -1), 1.0, 1.0, 2)
    )
    none = torch.tensor([[0.0, -math.inf, 0.0]])
    assert set(
        exponential.simulated(rng.take(torch.tensor([0])), none, 1.0, 1.0, 500).flatten().tolist()
    ) == {0, 2}


@pytest.mark.slow
def test_discrete_laplace_draws_and_keeps_its_epsilon() -> None:
    """The seeded sampler: P(x) ~ exp(-|x| / 1.5); neighbours are 3 steps apart, epsilon 2."""
    source = random.Random(5)

    def below(n: int) -> int:  # fast; n is at most a few hundred
        return int(source.random() * n)

    x = np.array([discrete_laplace(Fraction(3, 2), below) for _ in range(MANY)])
    near = np.arange(-15, 16)
    p = math.tanh(1 / 3) * np.exp(-np.abs(near) / 1.5)  # (1 - q) / (1 + q) with q = exp(-1 / 1.5)
    count = np.bincount(np.clip(x, -16, 16) + 16, minlength=33)
    tail = (1 - p.sum()) / 2
    assert stats.chisquare(count, np.concatenate([[tail], p, [tail]]) * MANY).pvalue > FIT
    half = MANY // 2
    shifted = [np.bincount(np.clip(z, -8, 11) + 8, minlength=20) for z in (x[:half], x[half:] + 3)]
    assert 1.85 < loss_at_least(*shifted) <= 2.0


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_librarys_noise(kind: str) -> None:
    """Ten thousand draws by OpenDP have the distribution that ours have."""
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    none = [0.0] * 10_000
    drawn = (
        library.laplace(none, 0.7, 1.4, 2.0)
        if kind == "laplace"
        else library.gaussian(none, 0.7, 1.0)
    )
    assert (
        stats.ks_2samp(drawn, ours(kind, 0.7, many=100_000)).pvalue > 1e-6
    )  # its draws have no seed
    assert stats.ks_2samp(drawn, ours(kind, 0.9, many=100_000)).pvalue < 1e-6


@pytest.mark.slow
def test_the_librarys_choices() -> None:
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    scores = SCORES[0].double().tolist()
    count = np.bincount(library.choose(scores, 3.0, 1.0, 10_000), minlength=12)
    assert (
        stats.chisquare(
            count, exponential.probabilities(SCORES, 3.0, 1.0)[0].numpy() * 10_000
        ).pvalue
        > 1e-6
    )


def test_the_librarys_bound_on_neighbours() -> None:
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    one, other = (np.array(library.laplace([x] * 10_000, 1.0, 2.0, 2.0)) for x in (0.0, 2.0))
    assert 1.0 < loss_at_least(*binned(one, other, 20)) <= 2.0


def test_the_library_refuses_what_it_cannot_prove() -> None:
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    with pytest.raises(CoveyError, match="more noise is needed"):
        library.laplace([0.0], 1.0, 2.0, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, -2.0])
def test_a_guarantee_needs_an_epsilon(epsilon: float) -> None:
    with pytest.raises(CoveyError, match="over 0"):
        gaussian.multiplier_for(epsilon, 1e-5)
    with pytest.raises(CoveyError, match="over 0"):
        exponential.weight_for(epsilon, 1.0)
    with pytest.raises(CoveyError, match="sensitivity"):
        exponential.weight_for(1.0, epsilon)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.privacy.library.find_spec", lambda name: None)
    with pytest.raises(CoveyError, match=r"pip install 'covey\[privacy\]'"):
        library.laplace([0.0], 1.0, 1.0, 1.0)
