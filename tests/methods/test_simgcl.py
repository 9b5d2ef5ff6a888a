"""SimGCL on clients: its loss by hand, and the suite that every method inherits."""

from dataclasses import replace

import pytest
import torch

from covey.contract.examples import Batch
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.methods.simgcl import NoiseContrast
from covey.methods.views import item_loss, noise
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

F64 = torch.float64


class TestSimGCL(Conformance):
    part = NoiseContrast()

    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            NCF(4, (4, 3), scale=0.1), Bce(), catalogue, Local("adam", 0.01, epochs=2), (self.part,)
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        return replace(full, mechanisms=(replace(self.part, weight=0.0),)), replace(
            full, mechanisms=()
        )


class TestSimGCLOtherReadings(TestSimGCL):
    part = NoiseContrast(eps_relative=True, items="positives", reduction="sum", views="each step")


def test_loss_is_the_contrast_of_two_noisy_tables() -> None:
    """The third row is padding; noise is 0.1 long and drawn once, so later steps keep it."""
    rng, none = Rng.of(0, 1, torch.arange(2)), Ragged.of([[], []])
    v_CRD = rng.fold("v").normal(3, 4, dtype=F64)
    real = torch.tensor([[True, True, False]] * 2)
    batch = Batch(torch.zeros(2, 3).long(), real, None, torch.zeros(2, 3), real.double())
    view = ClientView(
        {"items": v_CRD},
        TrainingData(none, none),
        Sent(),
        rng,
        NCF(4, (4, 3)),
        Bce(),
        Catalogue(9),
        batch,
    )
    mine = NoiseContrast(weight=0.3)
    ready = mine.prepare(view)
    torch.testing.assert_close(ready["one"].norm(dim=2), torch.full((2, 3), 0.1, dtype=F64))
    assert torch.equal(ready["two"], noise(v_CRD, 0.1, rng.fold("two")))
    later_CRD = v_CRD + 1
    loss_C = mine.loss(replace(view, params={"items": later_CRD}, prepared=ready))
    assert loss_C is not None
    torch.testing.assert_close(
        loss_C, 0.3 * item_loss(later_CRD + ready["one"], later_CRD + ready["two"], real, 0.2)
    )
    assert replace(mine, weight=0.0).loss(view) is None


def test_one_item_has_nothing_to_be_told_from() -> None:
    one = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]], dtype=F64)
    loss_C = item_loss(one, 2 * one + 1, torch.tensor([[True, False]]), 0.2)
    assert loss_C.tolist() == pytest.approx([0], abs=1e-12)


def test_bad_options() -> None:
    with pytest.raises(CoveyError, match="negative"):
        NoiseContrast(eps=-1.0)
    with pytest.raises(CoveyError, match="tau"):
        NoiseContrast(tau=0.0)
