"""Attackers among clients that upload item tables: the same attacks, from each attacker's table."""

import pytest
import torch

from attacked import TARGET
from covey.aggregate.combine import Mean
from covey.attacks.a_ra import ARa
from covey.attacks.explicit import ExplicitBoost
from covey.attacks.sign_flip import SignFlip
from covey.contract.attack import Attack
from covey.contract.fleet import Request
from covey.contract.model import Model
from covey.contract.views import TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.malicious import Malicious, SharedMemory
from covey.engine.client.program import LocalData, Program
from covey.engine.method import Method
from covey.methods.cofedrec import CoClusters, ItemContrast
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

N_ITEMS = 12
IDS = torch.tensor([7, 8])
LISTS = Ragged.of([[0, 5], [2]])


class TestAttackedCoFedRec(Conformance):
    attackers = 3

    def method(self, catalogue: Catalogue) -> Method:
        solver, contrast = (
            Local("sgd", 0.1, 2, 16, (("user",), ("items",))),
            ItemContrast(weight=0.05),
        )
        return Method(
            MF(4, scale=0.5, keep_items=True),
            Bce(),
            catalogue,
            solver,
            (contrast,),
            CoClusters(3),
            Mean(),
        )

    def attack(self) -> Attack:
        return ARa((TARGET, 5), rate=0.5)


class TestAttackedCoFedRecOnNCF(Conformance):
    """Attackers that train on made-up lists; the MLP is still uploaded as an update."""

    attackers = 3

    def method(self, catalogue: Catalogue) -> Method:
        model = NCF(4, (4, 3), 0.5, keep_items=True)
        return Method(
            model, Bce(), catalogue, Local("adam", 0.01, 2, 16), (), CoClusters(3), Mean()
        )

    def attack(self) -> Attack:
        return ExplicitBoost((TARGET,), scale=3.0)


def sent(attack: Attack | None, model: Model, table_CID: torch.Tensor) -> torch.Tensor:
    """The tables that clients 7 and 8 upload from their own two, [C, I, D]."""
    program = Program(model, Bce(1), Catalogue(N_ITEMS), Local("sgd", 1.0, 1))
    rng, data = Rng.of(0, 1, IDS), LocalData(TrainingData(LISTS, LISTS))
    start = {k: v.to(table_CID) for k, v in model.private(rng, Rng.server(0, 0, "x")).items()}
    kept = {**start, "items": table_CID}
    who = Malicious(program, attack, 7, memory=SharedMemory()) if attack else program
    answer = who.answer(Request("train", 1, IDS), kept, data, rng)[1]
    assert "items" not in answer.update and answer.ids_C.tolist() == [7, 8]
    return answer.model["items"]


def test_a_step_from_each_own_table_by_hand() -> None:
    """A-ra's row of the target is added to the attacker's own row; all other rows stay."""
    table_CID = torch.randn(
        2, N_ITEMS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    found_CID = sent(ARa((3,), users=4, scale=0.5, rate=0.1), MF(2, keep_items=True), table_CID)
    w_CSD = 0.5 * Rng.of(0, 1, IDS).fold("a-ra").fold("users").normal(4, 2, dtype=torch.float64)
    expected_CID = table_CID.clone()
    for c in range(2):
        sizes = [1 / (1 + torch.exp(w @ table_CID[c, 3])) for w in w_CSD[c]]
        expected_CID[c, 3] += (
            0.1 / 4 * sum(size * w for size, w in zip(sizes, w_CSD[c], strict=True))
        )
    torch.testing.assert_close(found_CID, expected_CID)


def test_flipping_turns_the_change_round_and_not_the_table() -> None:
    class Flip(SignFlip):
        def profile(self, view):  # type: ignore[no-untyped-def]
            return view.data

    table_CID = torch.randn(
        2, N_ITEMS, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    model = MF(2, keep_items=True)
    honest_CID, found_CID = sent(None, model, table_CID), sent(Flip(2.0), model, table_CID)
    assert not torch.equal(honest_CID, table_CID)
    torch.testing.assert_close(found_CID - table_CID, -2 * (honest_CID - table_CID))


def test_imagined_users_need_user_vectors() -> None:
    with pytest.raises(CoveyError, match="MF or NCF"):
        sent(ARa((3,)), LinearScore(2, keep_items=True), torch.zeros(2, N_ITEMS, 2))
