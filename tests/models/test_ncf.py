"""NCF: two ways to start its layers, and all items scored in pieces."""

import pytest
import torch

from covey.core.rng import Rng
from covey.models.base import DEEP_CLIENTS, DEEP_ITEMS, catalogue
from covey.models.ncf import NCF


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
