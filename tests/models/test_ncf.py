"""NCF's two ways to start its layers."""

import torch

from covey.models.ncf import NCF
from covey.rng import Rng


def test_layers_that_start_as_for_relu() -> None:
    """U(-b, b) with b = sqrt(6 / fan-in), of user and item together in the first layer; biases are 0."""
    plain, he = (NCF(8, (16, 4), he=he).public(10, Rng.server(0, 0, "x")) for he in (False, True))
    assert torch.equal(plain["items"], he["items"])
    for name, fan_in in (("user_half", 16), ("w0", 16), ("w1", 16), ("w2", 4)):
        bound = (6 / fan_in) ** 0.5
        assert float(he[name].abs().max()) <= bound and float(plain[name].abs().max()) <= fan_in**-0.5
        torch.testing.assert_close(he[name], 6**0.5 * plain[name])
    assert not any(he[f"b{k}"].any() for k in range(3)) and all(plain[f"b{k}"].any() for k in range(3))
    assert float(he["w0"].abs().max()) > 0.9 * (6 / 16) ** 0.5
