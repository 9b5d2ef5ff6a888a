"""A-ra: its upload by hand, and the exposure of its target with and without a defence."""

import pytest
import torch
from torch import Tensor

from attacked import TARGET, after, exposure
from covey.aggregate.combine import ItemMean
from covey.attacks.a_ra import ARa
from covey.contract.attack import Attack, AttackView
from covey.contract.model import Model
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Download, Sent, Upload
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.defenses.clip import ClipRows
from covey.defenses.krum import Krum
from covey.engine.method import Method
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance


class TestAttackedNCF(Conformance):
    attackers = 3

    def method(self, catalogue: Catalogue) -> Method:
        return Method(NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2))

    def attack(self) -> Attack:
        return ARa((TARGET, 5), rate=0.5)


class TestAttackedMF(Conformance):
    attackers = 2

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.5, epochs=1))

    def attack(self) -> Attack:
        return ARa((TARGET,), rate=0.5)


def poisoned(
    attack: ARa, model: Model, shared: dict[str, Tensor], rng: Rng, step: str = "train"
) -> Upload:
    ids_C, none = torch.tensor([7, 8]), Ragged.of([[], []])
    view = AttackView(
        step,
        1,
        Download(Sent(dict(shared))),
        TrainingData(none, none),
        ids_C,
        rng,
        model,
        Catalogue(4),
        {},
    )
    return attack.poison(view, Upload(ids_C, torch.ones(2)))[1]


def test_upload_by_hand() -> None:
    """MF: rate / (s k) times the sum over imagined users w of sigmoid(-w v) w, for k targets."""
    table_ID = torch.tensor([[0.0, 0.0], [1.0, -2.0], [0.5, 0.5], [3.0, 1.0]], dtype=torch.float64)
    rng = Rng.of(0, 1, torch.tensor([7, 8]))
    upload = poisoned(ARa((3, 1), users=4, scale=0.5, rate=0.1), MF(2), {"items": table_ID}, rng)
    rows = upload.update["items"]
    assert rows.items.values.tolist() == [1, 3, 1, 3] and rows.items.offsets.tolist() == [0, 2, 4]
    w_CSD = 0.5 * rng.fold("users").normal(4, 2, dtype=torch.float64)
    for place, (client, item) in enumerate([(0, 1), (0, 3), (1, 1), (1, 3)]):
        sizes = [1 / (1 + torch.exp(w @ table_ID[item])) for w in w_CSD[client]]
        by_hand = (
            0.1 / (4 * 2) * sum(size * w for size, w in zip(sizes, w_CSD[client], strict=True))
        )
        torch.testing.assert_close(rows.values[place], by_hand)


def test_other_steps_are_answered_honestly() -> None:
    assert not poisoned(
        ARa(), MF(2), {"items": torch.zeros(4, 2)}, Rng.of(0, 1, torch.arange(2)), "report"
    ).update


def test_needs_private_user_vectors() -> None:
    with pytest.raises(CoveyError, match="MF or NCF"):
        poisoned(ARa(), LinearScore(2), {"items": torch.zeros(4, 2)}, Rng.of(0, 1, torch.arange(2)))


ATTACK = ARa((TARGET,), scale=0.1, rate=0.5)  # the rate that all clients use


def test_exposure_rises_with_the_attack_alone() -> None:
    assert exposure(after(None)) == 0
    assert exposure(after(ATTACK, ItemMean())) == 1


def test_defences_take_it_back() -> None:
    """A bound that 95 % of honest rows meet, and a rule that assumes a third of attackers."""
    assert exposure(after(ATTACK, ItemMean(), ClipRows(0.01))) == 0
    assert exposure(after(ATTACK, Krum(0.3))) == 0


def test_weights_by_examples_do_not_shut_it_out() -> None:
    """It has no list, and its number of examples cannot be checked."""
    assert exposure(after(None, weighting="examples")) == 0
    assert exposure(after(ATTACK, ItemMean(), weighting="examples")) == 1


def test_the_same_over_the_wire() -> None:
    simulated, wire = after(ATTACK, ItemMean()), after(ATTACK, ItemMean(), wire=True)
    for name, value in simulated.server.public.items():
        torch.testing.assert_close(wire.server.public[name], value, rtol=1e-10, atol=1e-12)
    assert exposure(wire) == exposure(simulated)
