"""Clipping and noise on uploads: by hand, by distribution, on every field, and in the ledger."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.contract.ledger import Disclosure
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent, Upload
from covey.core.ragged import Ragged, Rows
from covey.core.rng import Rng
from covey.engine.client.blocks import Engine
from covey.engine.method import Method
from covey.evaluate.metrics import EvaluateConfig
from covey.methods.cl4fedrec import Contrast
from covey.methods.cofedrec import CoClusters, ItemContrast
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.privacy.pseudo_items import PseudoItems
from covey.privacy.uploads import NoisyUploads
from covey.run.assemble import program_of
from covey.solvers import Local
from covey.testing import Conformance

CLEAR = math.inf


class TestNoisyRows(Conformance):
    """Also the neutral setting: no noise, no bound."""

    def method(self, catalogue: Catalogue) -> Method:
        return self.made(catalogue, NoisyUploads(2.0, clip=0.1))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        off = self.made(catalogue, NoisyUploads(CLEAR, clip=CLEAR))
        return off, replace(off, mechanisms=())

    def made(self, catalogue: Catalogue, noise: NoisyUploads) -> Method:
        return Method(NCF(4, (4,)), Bce(), catalogue, Local("adam", 0.05, epochs=2), (noise,))


class TestPseudoItemsThenNoise(Conformance):
    """A whole upload with Gaussian noise, behind another method's mechanism and pseudo items."""

    def method(self, catalogue: Catalogue) -> Method:
        noise = NoisyUploads(1.0, 1e-6, 0.5, "gaussian", "upload")
        mechanisms = (Contrast(users=4, refit_steps=1), PseudoItems(7), noise)
        return Method(NCF(4, (4,)), Bce(), catalogue, Local("sgd", 0.1, epochs=2), mechanisms)


class TestEveryRowOfAModel(Conformance):
    """Models that are uploaded as they are, and every row of what is not."""

    def method(self, catalogue: Catalogue) -> Method:
        model, solver = LinearScore(4, keep_items=True), Local("sgd", 0.1, epochs=1)
        noise = NoisyUploads(4.0, clip=0.5, per="upload", rows="all")
        return Method(
            model, Bce(), catalogue, solver, (ItemContrast(0.01), noise), CoClusters(3), Mean()
        )


class TestPseudoItems(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            MF(4), Bce(), catalogue, Local("sgd", 0.1, epochs=1), (PseudoItems(5, fixed=False),)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        off = replace(self.method(catalogue), mechanisms=(PseudoItems(0),))
        return off, replace(off, mechanisms=())


def sealed(
    mechanism: Any, upload: Upload, owned: list[list[int]], round: int = 1, items: int = 6
) -> Upload:
    lists = Ragged.of(owned)
    view = ClientView(
        {},
        TrainingData(lists, lists),
        Sent(),
        Rng.of(0, round, upload.ids_C),
        MF(2),
        Bce(),
        Catalogue(items),
    )
    return mechanism.protect_upload(view, upload)


def example(dtype: torch.dtype = torch.float64) -> Upload:
    """Two clients: rows of norms 5, 0.5 and 0, and a dense parameter."""
    rows = Rows(
        Ragged.of([[0, 3], [3]]),
        torch.tensor([[3.0, -4.0], [0.3, 0.4], [0.0, 0.0]], dtype=dtype),
        6,
    )
    bias_C = torch.tensor([2.0, -0.5], dtype=dtype)
    return Upload(torch.arange(2), torch.ones(2), {"items": rows, "bias": bias_C})


def test_rows_are_clipped_by_hand() -> None:
    """L1 norms are 7, 0.7, 0 and, of the bias, 2 and 0.5; L2 norms 5, 0.5, 0."""
    one = sealed(NoisyUploads(CLEAR, clip=1.0), example(), [[0], [3]]).update
    want = torch.tensor([[3 / 7, -4 / 7], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(one["items"].values, want)
    torch.testing.assert_close(one["bias"], torch.tensor([1.0, -0.5], dtype=torch.float64))
    two = sealed(NoisyUploads(CLEAR, clip=1.0, kind="gaussian"), example(), [[0], [3]]).update
    torch.testing.assert_close(
        two["items"].values[0], torch.tensor([0.6, -0.8], dtype=torch.float64)
    )


def test_whole_uploads_are_clipped_by_hand() -> None:
    """Client 0: L1 norm 7 + 0.7 + 2, and 25 + 0.25 + 4 squared; client 1 stays under the bound."""
    for kind, factor in (("laplace", 1 / 9.7), ("gaussian", 29.25**-0.5)):
        out = sealed(
            NoisyUploads(CLEAR, clip=1.0, kind=kind, per="upload"), example(), [[0], [3]]
        ).update
        was = example().update
        torch.testing.assert_close(out["items"].values[:2], was["items"].values[:2] * factor)
        torch.testing.assert_close(
            out["bias"], was["bias"] * torch.tensor([factor, 1.0], dtype=torch.float64)
        )


def test_numbers_that_are_none_count_as_zero() -> None:
    upload = example()
    upload.update["items"].values[0] = torch.tensor([math.nan, math.inf])
    out = sealed(NoisyUploads(CLEAR, clip=1.0), upload, [[0], [3]]).update["items"].values
    assert out[0].tolist() == [0.0, 0.0]


def test_every_row_is_sent() -> None:
    out = sealed(NoisyUploads(CLEAR, clip=10.0, rows="all"), example(), [[0], [3]]).update["items"]
    assert out.items.values.tolist() == [0, 1, 2, 3, 4, 5] * 2
    torch.testing.assert_close(out.dense(), example().update["items"].dense())


def drawn(mechanism: NoisyUploads, clients: int, width: int) -> Tensor:
    """The noise on one row of zeros of each client."""
    zero = Upload(
        torch.arange(clients),
        torch.ones(clients),
        {"x": torch.zeros(clients, 1, width, dtype=torch.float64)},
    )
    return sealed(mechanism, zero, [[]] * clients).update["x"].flatten()


def test_the_noise_fits_the_sensitivity() -> None:
    """Vectors of norm 0.5 differ by 1: Laplace noise of scale 1 / 2 and deviation sqrt(2) / 2."""
    x = drawn(NoisyUploads(2.0, clip=0.5), 2000, 100)
    assert x.std() == pytest.approx(math.sqrt(2) / 2, rel=0.02)
    assert x.abs().mean() == pytest.approx(0.5, rel=0.02)
    mechanism = NoisyUploads(1.0, 1e-5, 0.5, "gaussian")
    assert drawn(mechanism, 2000, 100).std() == pytest.approx(mechanism.multiplier, rel=0.02)
    assert mechanism.multiplier == pytest.approx(
        3.73, abs=0.01
    )  # less than the classic sqrt(2 ln(1.25 / delta)) = 4.84


@pytest.mark.parametrize("per", ["row", "upload"])
def test_a_device_draws_from_its_own_entropy(per: Any) -> None:
    """No two draws are equal, the scale is right, and clipping happens first."""
    mechanism = NoisyUploads(2.0, clip=0.5, per=per, noise="device")
    x, again = drawn(mechanism, 4, 300), drawn(mechanism, 4, 300)
    assert not torch.equal(x, again)
    assert torch.cat([x, again]).abs().mean() == pytest.approx(0.5, rel=0.1)
    out = sealed(NoisyUploads(1e9, clip=1.0, per=per, noise="device"), example(), [[0], [3]]).update
    near = torch.tensor([3.0, -4.0], dtype=torch.float64) / (7.0 if per == "row" else 9.7)
    torch.testing.assert_close(out["items"].values[0], near, atol=1e-4, rtol=0)
    assert out["bias"].shape == (2,)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_device_draws_by_the_library(kind: Any) -> None:
    pytest.importorskip("opendp", reason="pip install 'covey[privacy]'")
    mechanism = NoisyUploads(2.0, 1e-5 if kind == "gaussian" else 0.0, 0.5, kind, noise="opendp")
    x = drawn(mechanism, 2, 1000)
    want = math.sqrt(2) / 2 if kind == "laplace" else mechanism.multiplier
    assert x.std() == pytest.approx(want, rel=0.15)
    out = sealed(
        replace(mechanism, epsilon=40_000.0, clip=9.0), example(), [[0], [3]]
    ).update  # hardly any noise
    torch.testing.assert_close(
        out["items"].values, example().update["items"].values, atol=2.0, rtol=0
    )


def ledger_of(*mechanisms: Any) -> dict[str, Disclosure]:
    method = Method(NCF(4, (4,)), Bce(), Catalogue(6), Local("sgd", 0.1), mechanisms)
    program = program_of(method, EvaluateConfig(), Engine(), 0)
    return {d.name: d for d in program.disclosures() if d.step == "train"}


def test_the_ledger_says_what_is_protected_and_what_is_not() -> None:
    rows = ledger_of(NoisyUploads(2.0, clip=0.5))
    assert (rows["update/items"].epsilon, rows["update/items"].unit) == (2.0, "row")
    assert "L1 norm 0.5" in rows["update/items"].what and "simulated" in rows["update/items"].what
    assert math.isinf(rows["update/items/touched"].epsilon)
    whole = ledger_of(NoisyUploads(2.0, 1e-6, 0.5, "gaussian", "upload", rows="all"))
    assert {d.budget for d in whole.values()} == {"noisy uploads"}
    assert {d.delta for d in whole.values()} == {1e-6}
    assert all(
        d.multiplier > 0 and d.epsilon == 2.0 for d in whole.values()
    )  # nothing else is told
    assert all(math.isinf(d.epsilon) for d in ledger_of(NoisyUploads(CLEAR)).values())


def test_pseudo_items_are_no_guarantee() -> None:
    for order in ((PseudoItems(5), NoisyUploads(2.0)), (NoisyUploads(2.0), PseudoItems(5))):
        found = ledger_of(*order)
        assert math.isinf(found["update/items/touched"].epsilon)
        assert "5 pseudo items" in found["update/items/touched"].what
        assert found["update/items"].epsilon == 2.0
    assert math.isinf(ledger_of(PseudoItems(5))["update/items"].epsilon)


def test_pseudo_items_are_not_the_clients() -> None:
    """Client 0 has 0 and 3 of six items: three more rows, never its own; client 1 has touched 3."""
    out = sealed(PseudoItems(3), example(), [[0, 3], [3]]).update["items"]
    mine, other = (
        set(part.tolist()) for part in out.items.values.split(out.items.lengths.tolist())
    )
    assert {0, 3} < mine and len(mine) == 5
    assert 3 in other and len(other) == 4
    was, now = example().update["items"].dense(), out.dense()
    torch.testing.assert_close(now[0, [0, 3]], was[0, [0, 3]])
    torch.testing.assert_close(
        now[1, [0, 1, 2, 4, 5]], torch.zeros(5, 2, dtype=torch.float64)
    )  # like its own row
    assert (out.items.values[:5].diff() > 0).all()


def test_pseudo_items_look_like_the_others() -> None:
    """They have the mean and deviation of the client's columns; `fixed` keeps the items."""
    values = torch.stack([torch.linspace(-1, 3, 50), torch.linspace(5, 6, 50)], 1).double()
    upload = Upload(
        torch.arange(1), torch.ones(1), {"items": Rows(Ragged.of([list(range(50))]), values, 5000)}
    )
    out = [
        sealed(PseudoItems(2000), upload, [list(range(50))], round, 5000).update["items"]
        for round in (1, 2)
    ]
    made = out[0].values[50:]
    torch.testing.assert_close(made.mean(0), values.mean(0), atol=0.1, rtol=0)
    torch.testing.assert_close(made.std(0), values.std(0, correction=0), atol=0.1, rtol=0)
    assert torch.equal(out[0].items.values, out[1].items.values)
    assert not torch.equal(out[0].values[50:], out[1].values[50:])
    anew = sealed(PseudoItems(2000, fixed=False), upload, [list(range(50))], 2, 5000).update[
        "items"
    ]
    assert not torch.equal(anew.items.values, out[0].items.values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0; it must be over 0"),
        ({"epsilon": -1.0}, "epsilon = -1.0"),
        ({"clip": 0.0}, "clip = 0.0"),
        (
            {"noise": "devise"},
            "noise = 'devise'; did you mean 'device'. valid are simulated, device, opendp",
        ),
        ({"clip": CLEAR}, "noise needs a bound"),
        ({"delta": 1e-5}, "Laplace noise has none"),
        ({"kind": "gaussian"}, "delta = 0.0; it is over 0 and below 1"),
        ({"kind": "gaussian", "delta": 1.0}, "delta = 1.0"),
        ({"kind": "gaussian", "delta": 1e-5, "noise": "device"}, "set noise = 'opendp'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        NoisyUploads(**options)


def test_bad_counts() -> None:
    with pytest.raises(CoveyError, match="at least 0"):
        PseudoItems(-1)


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.privacy.library.find_spec", lambda name: None)
    with pytest.raises(
        CoveyError, match=r"OpenDP, which is not installed; pip install 'covey\[privacy\]'"
    ):
        NoisyUploads(noise="opendp")
