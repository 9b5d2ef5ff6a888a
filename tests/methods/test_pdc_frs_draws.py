"""What clients contribute to PDC-FRS: distributions by hand and by counting; similar titles."""

import math
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from command import SMALL, Covey, expect_line, sets
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.methods import titles_encoder
from covey.methods.pdc_frs_draws import chances, contribution, perturbed
from covey.methods.titles import Likeness, likeness, table_likeness
from covey.run.assemble import method_of
from covey.run.config.schema import Config
from covey.run.config.shipped import read

F64 = torch.float64


def vectors(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def test_exponential_mechanism() -> None:  # Eq. 5
    """Items at cosines 1, 0 and -1 of the first: S ranges over 2, so epsilon 4 weighs exp(S)."""
    like = Likeness(3, vectors([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]), sensitivity=2.0)
    weights = [math.exp(1), math.exp(0), math.exp(-1)]
    edges = torch.tensor([w / sum(weights) for w in weights], dtype=F64).cumsum(0)
    unit_T = torch.tensor(
        [0.0, edges[0] - 1e-9, edges[0] + 1e-9, edges[1] - 1e-9, edges[1] + 1e-9, 1 - 1e-9],
        dtype=F64,
    )
    assert perturbed(torch.zeros(6).long(), unit_T, like, 4.0).tolist() == [0, 0, 1, 1, 2, 2]


def test_every_item_has_its_own_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.methods.pdc_frs_draws.ROWS", 2)
    v_ID = F.normalize(Rng.of(0, 0, torch.tensor([5])).normal(5, 2, dtype=F64)[0], dim=1)
    like = Likeness(5, v_ID, sensitivity=2.0)
    items_T = torch.arange(5).repeat(20_000)
    unit_T = Rng.of(1, 0, torch.tensor([5])).uniform(len(items_T))[0]
    drawn_T = perturbed(items_T, unit_T, like, 8.0)
    share_II = torch.zeros(5, 5, dtype=F64).index_put_(
        (items_T, drawn_T), torch.tensor(1 / 20_000, dtype=F64), True
    )
    want_II = (8.0 * (v_ID @ v_ID.mT) / 4.0).softmax(1)
    torch.testing.assert_close(share_II, want_II, rtol=0, atol=0.015)


def test_privacy_of_one_item() -> None:
    """No output is more than e^epsilon likelier from one item than from another."""
    like = likeness(("a red cat", "a red dog", "blue sky", "the sea"), 4)
    p_II = (3.0 / (2 * like.sensitivity) * like.rows(torch.arange(4))).softmax(1)
    assert float((p_II.max(0).values / p_II.min(0).values).max()) <= math.exp(3.0) + 1e-12


def test_likeness_of_titles() -> None:
    like = likeness(("the red cat", "the red cat", "blue dogs", "", "X"), 5)
    s_II = like.rows(torch.arange(5))
    assert s_II.diagonal().tolist() == [1] * 5
    assert float(s_II[0, 1]) == pytest.approx(1)
    assert float(s_II[0, 2]) == pytest.approx(0, abs=1e-9)
    assert like.sensitivity == pytest.approx(1 - float(s_II.min()))


def test_likeness_without_titles_is_randomised_response() -> None:
    like = likeness((), 4, "itself")
    assert like.sensitivity == 1
    assert like.rows(torch.tensor([2])).tolist() == [[0, 0, 1, 0]]
    with pytest.raises(CoveyError, match="3 titles for 4 items"):
        likeness(("a", "b", "c"), 4)
    with pytest.raises(CoveyError, match=r"no titles.*'itself'"):
        likeness(("", "-", "", ""), 4)


@given(st.lists(st.integers(0, 6), max_size=40), st.floats(0.1, 30), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_draws_are_those_of_each_item_alone(items: list[int], epsilon: float, seed: int) -> None:
    """Each position is the inverse of its item's distribution function, whichever others draw."""
    like = table_likeness(Rng.of(seed, 0, torch.arange(1)).normal(7, 3, dtype=F64)[0])
    items_T, unit_T = (
        torch.tensor(items, dtype=torch.long),
        Rng.of(seed, 1, torch.arange(1)).uniform(len(items))[0],
    )
    cdf_TI = chances(items_T, like, epsilon).cumsum(1)
    want_T = (cdf_TI <= unit_T[:, None]).sum(1).clamp(max=6)
    assert torch.equal(perturbed(items_T, unit_T, like, epsilon), want_T)


@given(st.floats(0.1, 20), st.sampled_from(["exact", "range", "clipped"]), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_every_bound_of_the_sensitivity_is_one(epsilon: float, bound: str, seed: int) -> None:
    """No output is over e^epsilon likelier by one item than another, e^(epsilon/2) by none."""
    v_ID = Rng.of(seed, 0, torch.arange(1)).normal(9, 2, dtype=F64)[0]
    like = table_likeness(v_ID, bound)  # type: ignore[arg-type]
    assert like.rows(torch.arange(9)).min() >= like.least
    p_II = chances(torch.arange(9), like, epsilon)
    assert float((p_II.amax(0) / p_II.amin(0)).log().max()) <= epsilon + 1e-9
    assert float((p_II * 9).log().abs().max()) <= epsilon / 2 + 1e-9


def test_bounds_by_hand() -> None:
    """Cosines 1, 0 and -0.6: the widest difference in a column is 1.6."""
    v_ID = vectors([1.0, 0.0], [0.0, 1.0], [-0.6, 0.8])
    assert [
        table_likeness(v_ID, b).sensitivity for b in ("exact", "range", "clipped")
    ] == pytest.approx([1.6, 2, 1])
    assert table_likeness(v_ID, "clipped").rows(torch.tensor([0])).tolist() == [[1, 0, 0]]
    assert (
        table_likeness(vectors([1.0, 0.0], [2.0, 0.0])).sensitivity == 1
    )  # all alike: any draw will do


def test_lists_of_equal_length() -> None:
    """All contribute 5; the first has no items and draws uniformly, the last has only one item."""
    like = Likeness(4, None)
    own = Ragged.of([[], [0, 1], [3]])
    rng = Rng.of(0, 0, torch.arange(3))
    for how, lengths in (("perturbed", [5, 5, 5]), ("uniform", [5, 5, 5]), ("clean", [0, 5, 5])):
        assert contribution(own, rng, how, like, 1.0, 5).lengths.tolist() == lengths  # type: ignore[arg-type]
    clean = contribution(own, rng, "clean", like, 1.0, 5)
    assert set(clean.values[:5].tolist()) <= {0, 1} and clean.values[5:].tolist() == [3] * 5
    alone = contribution(
        own.take(torch.tensor([2])), rng.take(torch.tensor([2])), "perturbed", like, 1.0, 5
    )
    assert torch.equal(alone.values, contribution(own, rng, "perturbed", like, 1.0, 5).values[10:])


def test_draws_of_a_device() -> None:
    """By OpenDP, without the run's seed: near certain at a large epsilon, uniform without items."""
    pytest.importorskip("opendp")
    own, rng, like = Ragged.of([[2] * 30, []]), Rng.of(0, 0, torch.arange(2)), Likeness(3, None)
    said = contribution(own, rng, "perturbed", like, 80.0, 30, "opendp")
    assert said.values[:30].tolist() == [2] * 30 and set(said.values[30:].tolist()) == {0, 1, 2}
    twice = [contribution(own, rng, "perturbed", like, 0.1, 30, "opendp") for _ in range(2)]
    assert not torch.equal(twice[0].values, twice[1].values)


def test_nothing_of_the_list_is_in_a_uniform_contribution() -> None:
    one, two = Ragged.of([[0] * 50]), Ragged.of([[3] * 50])
    rng, like = Rng.of(0, 0, torch.arange(1)), Likeness(4, None)
    said = [contribution(own, rng, "uniform", like, 5.0, 0).values for own in (one, two)]
    assert torch.equal(*said) and set(said[0].tolist()) == {0, 1, 2, 3}


def test_pieces_of_words() -> None:
    """ "film" and "films" share no word but most of their pieces."""
    titles = ("a good film", "two films", "sky", "blue sky")
    rows = {by: likeness(titles, 4, by).rows(torch.tensor([0])) for by in ("words", "characters")}
    assert float(rows["words"][0, 1]) == pytest.approx(0, abs=1e-6)
    assert float(rows["characters"][0, 1]) > 0.1


def test_a_missing_encoder_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(titles_encoder, "find_spec", lambda name: None)
    with pytest.raises(CoveyError, match=r"pip install 'covey\[text\]'"):
        likeness(("a missing", "encoder"), 2, "encoder")


def test_the_shipped_titles_name_the_command_before_anything_is_written(
    covey: Covey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles_encoder, "find_spec", lambda name: None)
    likeness.cache_clear()
    method = method_of(Config.of(read("methods", "pdc-frs-titles")), Catalogue(9))
    assert [m.similarity for m in method.mechanisms] == ["encoder"]
    titles, plain = (read("methods", name) for name in ("pdc-frs-titles", "pdc-frs"))
    assert titles["mechanism"][0].pop("similarity") and titles.pop("title") != plain.pop("title")
    assert titles == plain
    output = covey("run", "--method", "pdc-frs-titles", *sets(*SMALL), "--out", tmp_path / "out")
    expect_line(output, r"pip install 'covey\[text\]'")
    assert not (tmp_path / "out").exists()


def test_the_mean_over_words_ignores_the_padding() -> None:
    """With a layer of random weights: a title has the same vector alone and with a longer one."""
    torch.manual_seed(0)
    config = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "layer_norm_eps": 1e-12,
    }
    at, sizes = "encoder.layer.0", {"intermediate.dense": (16, 8), "output.dense": (8, 16)}
    sizes |= {
        f"attention.{k}": (8, 8) for k in ("self.query", "self.key", "self.value", "output.dense")
    }
    w = {f"{at}.{k}.weight": torch.randn(*size) for k, size in sizes.items()}
    w |= {f"{at}.{k}.bias": torch.randn(size[0]) for k, size in sizes.items()}
    norms = ("embeddings", f"{at}.attention.output", f"{at}.output")
    w |= {f"{k}.LayerNorm.{part}": torch.ones(8) for k in norms for part in ("weight", "bias")}
    w |= {
        f"embeddings.{k}_embeddings.weight": torch.randn(10, 8)
        for k in ("word", "position", "token_type")
    }
    both = titles_encoder.sentences(
        w, config, torch.tensor([[1, 2, 0], [3, 4, 5]]), torch.tensor([[1.0, 1, 0], [1, 1, 1]])
    )
    alone = titles_encoder.sentences(w, config, torch.tensor([[1, 2]]), torch.ones(1, 2))
    torch.testing.assert_close(both[0], alone[0])


@pytest.mark.skipif(find_spec(titles_encoder.PACKAGE) is None, reason="pip install 'covey[text]'")
def test_the_encoder_knows_what_titles_mean() -> None:
    titles = (
        "Toy Story (1995)",
        "Star Wars (1977)",
        "The Empire Strikes Back (1980)",
        "Cooking pasta at home",
    )
    s_II = likeness(titles, 4, "encoder").rows(torch.arange(4))
    assert float(s_II[1, 2]) > 0.35 > float(s_II[1, 3])
