"""Noise in whole numbers: its distribution, clipping on the grid, and the guarantee."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from covey.privacy.discrete import bernoulli_exp, discrete_laplace, on_grid, released, scale_of


def dice(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.mark.parametrize(("top", "bottom"), [(0, 1), (1, 3), (1, 1), (5, 7)])
def test_a_coin_of_probability_exp(top: int, bottom: int) -> None:
    below = dice(1).randrange
    share = sum(bernoulli_exp(top, bottom, below) for _ in range(20_000)) / 20_000
    assert share == pytest.approx(math.exp(-top / bottom), abs=0.012)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(7, 3)])
def test_the_law_is_discrete_laplace(scale: Fraction) -> None:
    below = dice(2).randrange
    seen = Counter(discrete_laplace(scale, below) for _ in range(20_000))
    decay = math.exp(-1 / scale)
    chance = {x: (1 - decay) / (1 + decay) * decay ** abs(x) for x in range(-40, 41)}
    common = [x for x in chance if chance[x] * 20_000 > 20]
    rest = 20_000 - sum(seen[x] for x in common)
    expected = [chance[x] * 20_000 for x in common]
    counts = [*(seen[x] for x in common), rest]
    assert chisquare(counts, [*expected, 20_000 - sum(expected)], sum_check=False).pvalue > 0.001


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=8), st.integers(1, 200))
def test_the_clip_on_the_grid_is_exact(row: list[float], most: int) -> None:
    whole = on_grid(row, 2.0**-4, most)
    assert sum(map(abs, whole)) <= most
    assert all(
        z == 0 or math.copysign(1, z) == math.copysign(1, x)
        for z, x in zip(whole, row, strict=True)
    )
    if sum(abs(x) * 16 for x in row) <= most:
        assert all(
            abs(z / 16 - x) < 1 / 16 and abs(z / 16) <= abs(x)
            for z, x in zip(whole, row, strict=True)
        )


def test_what_is_not_finite_counts_as_nothing() -> None:
    assert on_grid([math.nan, math.inf, -1.0], 0.5, 10) == [0, 0, -2]
    assert on_grid([-1e308, 1e308], 0.5, 10) == [-5, 5]


def test_the_guarantee_on_every_pair_of_inputs() -> None:
    """Two coordinates of at most three steps: probabilities differ by e^epsilon at most."""
    most, epsilon = 3, 1.5
    scale = float(scale_of(most, epsilon))

    def chance(out: Sequence[int], z: Sequence[int]) -> float:
        return math.exp(-sum(abs(o - x) for o, x in zip(out, z, strict=True)) / scale)

    inputs = {
        tuple(on_grid([float(x) for x in z], 1.0, most)) for z in product(range(-9, 10), repeat=2)
    }
    assert len(inputs) == 25  # all vectors of at most three steps
    ratios = [
        chance(o, a) / chance(o, b)
        for a in inputs
        for b in inputs
        for o in product(range(-8, 9), repeat=2)
    ]
    assert max(ratios) <= math.exp(epsilon) * (1 + 1e-12)
    assert max(ratios) == pytest.approx(math.exp(epsilon))  # and no more noise than that needs


def test_a_release_has_the_scale_of_the_paper() -> None:
    u_CD = torch.randn(400, 16, generator=torch.Generator().manual_seed(0))
    for clip, epsilon in ((1.0, 4.0), (0.3, 8.0)):
        noisy_CD = released(u_CD, clip, epsilon, dice(3).randrange)
        clean_CD = u_CD * clip / u_CD.abs().sum(1, keepdim=True)
        noise_CD = noisy_CD - clean_CD
        assert float(noise_CD.abs().mean()) == pytest.approx(2 * clip / epsilon, rel=0.04)
        assert noisy_CD.dtype == u_CD.dtype and noisy_CD.shape == u_CD.shape
        step = 2.0 ** (math.floor(math.log2(clip)) - 16)
        assert torch.equal(
            (noisy_CD.double() / step).round() * step, noisy_CD.double()
        )  # on the grid


def test_the_system_is_asked_for_the_randomness() -> None:
    """Draws differ each time, whatever the seeds of the process."""

    def draw() -> Tensor:
        random.seed(0)
        torch.manual_seed(0)
        return released(torch.zeros(2, 8), 1.0, 1.0)

    assert not torch.equal(draw(), draw())
