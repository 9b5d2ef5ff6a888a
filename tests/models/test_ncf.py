"""NCF: two ways to start its layers, GMF and NeuMF, and all items scored in pieces."""

import pytest
import torch

from covey.core import Catalogue, CoveyError, Fields
from covey.core.rng import Rng
from covey.models.base import DEEP_CLIENTS, DEEP_ITEMS, catalogue
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives import Bce
from covey.server import Method
from covey.solvers import Local
from covey.testing import Conformance

NEUMF = NCF(4, (5, 3), scale=1.0, gmf=2)


class TestNeuMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        solver = Local("adam", 0.01, epochs=2, batch=16)
        return Method(NCF(4, (4, 3), gmf=2), Bce(), catalogue, solver, weighting="examples")


class TestGMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(NCF(4, ()), Bce(), catalogue, Local("sgd", 0.5, epochs=2))


def test_layers_that_start_as_for_relu() -> None:
    """U(-b, b) with b = sqrt(6 / fan-in), which counts user and item together; biases are 0."""
    plain, he = (NCF(8, (16, 4), he=he).public(10, Rng.server(0, 0, "x")) for he in (False, True))
    assert torch.equal(plain["items"], he["items"])
    for name, fan_in in (("user_half", 16), ("w0", 16), ("w1", 16), ("w2", 4)):
        bound = (6 / fan_in) ** 0.5
        assert (
            float(he[name].abs().max()) <= bound and float(plain[name].abs().max()) <= fan_in**-0.5
        )
        torch.testing.assert_close(he[name], 6**0.5 * plain[name])
    assert not any(he[f"b{k}"].any() for k in range(3)) and all(
        plain[f"b{k}"].any() for k in range(3)
    )
    assert float(he["w0"].abs().max()) > 0.9 * (6 / 16) ** 0.5


@pytest.mark.parametrize("own", [False, True])
def test_all_items_in_pieces_score_as_at_once(own: bool) -> None:
    """More clients and items than a tile, with shared and personal tables, all items or some."""
    many, n_items, model = (
        2 * DEEP_CLIENTS + 5,
        2 * DEEP_ITEMS + 77,
        NCF(6, (5, 4), scale=1.0, keep_items=own),
    )
    params = {
        k: v.double()[None] for k, v in model.public(n_items, Rng.server(1, 0, "public")).items()
    }
    rng = Rng.of(1, 1, torch.arange(many))
    if own:
        params["items"] = rng.fold("items").normal(n_items, 6).double()
    u_CD = rng.fold("user").normal(6).double()
    whole_CI = model.score(params, u_CD, params["items"])
    assert len(whole_CI.unique(dim=0)) == many  # nobody's scores are another's
    torch.testing.assert_close(catalogue(model, params, u_CD), whole_CI)
    torch.testing.assert_close(catalogue(model, params, u_CD, 100, 900), whole_CI[:, 100:900])


def params_of(model: NCF, users: int = 3, n_items: int = 7) -> Fields:
    public = model.public(n_items, Rng.server(2, 0, "public"))
    private = model.private(Rng.of(2, 1, torch.arange(users)), Rng.server(2, 0, "start"))
    return {k: v[None] for k, v in public.items()} | private


def test_neumf_by_hand() -> None:
    """MLP: relu(1 - 2 + 5) = 4 and relu(-1 - 2) = 0; GMF: 3 * 2 * 0.5 = 3; bias 0.25."""
    model = NCF(1, (2,), gmf=1)
    params = {
        "user_half": torch.tensor([[[1.0, -1.0]]]),
        "w0": torch.tensor([[[1.0, 1.0]]]),
        "b0": torch.tensor([[5.0, 0.0]]),
        "w1": torch.tensor([[[10.0], [20.0]]]),
        "b1": torch.tensor([[0.25]]),
        "w_gmf": torch.tensor([[0.5]]),
    }
    z_CL = model.score(params, torch.tensor([[1.0, 3.0]]), torch.tensor([[[-2.0, 2.0]]]))
    assert z_CL.tolist() == [[40 + 3 + 0.25]]


def test_without_the_weight_of_gmf_neumf_is_the_mlp() -> None:
    params = params_of(NEUMF) | {"w_gmf": torch.zeros(1, 2)}
    mlp = params | {"items": params["items"][..., :4], "user": params["user"][:, :4]}
    for own in (False, True):  # one table for all, and a table for each client
        table, part = (x["items"].expand(3 if own else 1, -1, -1) for x in (params, mlp))
        want_CL = NCF(4, (5, 3)).score(mlp, mlp["user"], part)
        assert torch.equal(NEUMF.score(params, params["user"], table), want_CL)
        assert float(want_CL.std()) > 0


def test_without_the_weight_of_the_mlp_neumf_is_mf_with_weights() -> None:
    params = params_of(NEUMF)
    params |= {"w2": torch.zeros(1, 3, 1), "b2": torch.zeros(1, 1)}
    got_CL = NEUMF.score(params, params["user"], params["items"])
    weighted_CD = params["user"][:, 4:] * params["w_gmf"]
    want_CL = MF(2).score({}, weighted_CD, params["items"][..., 4:])
    assert torch.equal(got_CL, want_CL) and float(want_CL.std()) > 0


def test_gmf_alone_is_mf_with_weights_and_a_bias() -> None:
    model = NCF(4, (), scale=1.0)
    params = params_of(model)
    assert set(params) == {"items", "user", "w_gmf", "b0"} == {*model.shared, *model.kept}
    want_CL = MF(4).score({}, params["user"] * params["w_gmf"], params["items"]) + params["b0"]
    assert torch.equal(model.score(params, params["user"], params["items"]), want_CL)
    bound = 4**-0.5
    assert 0 < float(params["w_gmf"].abs().max()) <= bound


def test_the_last_layer_of_neumf_joins_both_parts() -> None:
    """It has 3 + 2 inputs, and so starts at U(-1 / sqrt(5), 1 / sqrt(5))."""
    params, alone = params_of(NEUMF), params_of(NCF(4, (5, 3), scale=1.0))
    assert params["items"].shape == (1, 7, 6) and params["user"].shape == (3, 6)
    layers = {f"{kind}{k}" for kind in "wb" for k in range(3)}
    assert set(NEUMF.shared) == {"items", "user_half", "w_gmf", *layers}
    torch.testing.assert_close(params["w2"], alone["w2"] * (3 / 5) ** 0.5)
    assert torch.equal(params["w1"], alone["w1"])
    kept = NCF(4, (5, 3), gmf=2, keep_mlp=True)
    assert kept.shared == ("items",) and set(
        kept.private(Rng.of(0, 1, torch.arange(2)), Rng.server(0, 0, "start"))
    ) == set(kept.kept)


@pytest.mark.parametrize("options", [{"gmf": -1}, {"hidden": (), "gmf": 2}])
def test_widths_that_do_not_fit(options: dict[str, object]) -> None:
    with pytest.raises(CoveyError, match="gmf"):
        NCF(4, **options)  # type: ignore[arg-type]
