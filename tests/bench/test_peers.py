"""What stands for Covey's settings in other libraries, and these libraries where they are there."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import peer_models as of
import peers
from covey.core.ragged import Ragged
from covey.data.split import Split
from covey.pooled.ease import Ease
from covey.pooled.ials import Ials
from render_peers import peers as rendered

USERS, ITEMS = 30, 18
IALS = Ials(dim=4, sweeps=3, unseen=0.2, decay=0.05)


def lists() -> tuple[np.ndarray, Ragged]:
    x = (np.random.default_rng(1).random((USERS, ITEMS)) < 0.3).astype(float)
    x[4], x[:, 2] = 0, 0  # a user and an item without any pair
    return x, Ragged.of([np.flatnonzero(row).tolist() for row in x])


def side(x: np.ndarray, v: np.ndarray, weight: float, r: np.ndarray) -> np.ndarray:
    """The equations of the other libraries, with all pairs written out."""
    made = []
    for row, own in zip(x, r):
        a = (v.T * (1 + weight * row)) @ v + own * np.eye(v.shape[1])
        made.append(np.linalg.solve(a, v.T @ ((1 + weight) * row)))
    return np.array(made)


def dense(x: np.ndarray, weight: float, r_N: np.ndarray, r_I: np.ndarray) -> np.ndarray:
    v = of.start_of(IALS, ITEMS).astype(float) * of.Mapped(IALS).longer
    for _ in range(IALS.sweeps):
        v = side(x.T, side(x, v, weight, r_N), weight, r_I)
    return side(x, v, weight, r_N) @ v.T


def by_frequency(x: np.ndarray) -> np.ndarray:
    to = of.Mapped(IALS)
    r_N, r_I = to.regularisation(x.sum(1), ITEMS), to.regularisation(x.sum(0), USERS)
    return dense(x, to.weight, r_N, r_I)


def test_the_settings_by_hand() -> None:
    to = of.Mapped(Ials(unseen=0.5, decay=0.1))
    assert (to.weight, to.longer**2) == (2.0, pytest.approx(1.5))
    assert to.regularisation(4, 10) == pytest.approx(0.1 * (4 + 5) * 1.5 / 0.5)
    x = of.matrix(Ragged.of([[0, 1], []]), 2)  # two users and two items with one pair on average
    assert to.constant(x) == pytest.approx(to.regularisation(1, 2))


def test_mapped_settings_give_coveys_model() -> None:
    x, pairs = lists()
    ours = of.covey_scores(pairs, ITEMS, IALS, seed=0)
    assert np.array_equal(ours, IALS.fit(pairs, ITEMS).score(torch.arange(USERS)).numpy())
    assert abs(ours - of.covey_scores(pairs, ITEMS, IALS, seed=1)).max() > 0.01
    np.testing.assert_allclose(by_frequency(x) / of.Mapped(IALS).longer ** 2, ours, atol=2e-5)


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("library", ["implicit", "lenskit"])
def test_the_libraries_solve_these_equations(library: str) -> None:
    pytest.importorskip(library)
    fit = {"implicit": of.implicit_scores, "lenskit": of.lenskit_scores}[library]
    x, pairs = lists()
    x_NI, start = of.matrix(pairs, ITEMS), of.start_of(IALS, ITEMS)
    np.testing.assert_allclose(fit(x_NI, IALS, 0, start), by_frequency(x), atol=3e-5)
    to, constant = of.Mapped(IALS), of.Mapped(IALS).constant(x_NI)
    same = dense(x, to.weight, np.full(USERS, constant), np.full(ITEMS, constant))
    np.testing.assert_allclose(fit(x_NI, IALS, 0, start, frequency=False), same, atol=3e-5)
    own = [fit(x_NI, IALS, seed) for seed in (0, 0, 1)]
    assert np.array_equal(own[0], own[1]) and abs(own[0] - own[2]).max() > 1e-4


@pytest.mark.filterwarnings("ignore")
def test_ease_is_the_same() -> None:
    pytest.importorskip("lenskit")
    _, pairs = lists()
    theirs = of.lenskit_ease_scores(of.matrix(pairs, ITEMS), 2.0)
    ours = Ease(2.0).fit(pairs, ITEMS).score(torch.arange(USERS))
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_metrics_of_the_same_lists() -> None:
    pytest.importorskip("ir_measures")
    _, pairs = lists()
    halves = [part.tolist() for part in peers.rows_of(pairs)]
    train, test = Ragged.of([row[::2] for row in halves]), Ragged.of([row[1::2] for row in halves])
    split = Split(USERS, ITEMS, train, Ragged.of([[]] * USERS), test)
    scores = np.random.default_rng(2).random((USERS, ITEMS)).astype(np.float32)
    ours, shown = peers.by_covey(scores, split), peers.Peers(split).lists(scores)
    theirs = peers.by_ir_measures(shown, test)
    for name, value_N in ours.items():
        np.testing.assert_allclose(value_N, theirs[name], atol=1e-12)
        assert np.isnan(value_N[4]) and not np.isnan(value_N).all()


def test_rows_in_the_table() -> None:
    stored = Path(__file__).parents[2] / "results" / "bench-peers.json"
    found = json.loads(stored.read_text())
    frequency = [row for row in found["rows"] if "frequency" in row["model"]]
    apart = [max(row["scores apart"]) for row in frequency if row["start"] == "covey"]
    assert len(apart) == 3 and max(apart) < 1e-4
    assert len(rendered(found)) == len(found["rows"]) + 6
