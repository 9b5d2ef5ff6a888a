"""LightGCN as a base model: alone, without layers, and under CL4FedRec and PDC-FRS."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from covey.contract.examples import Batch
from covey.core import Catalogue, CoveyError, Rng, Round
from covey.methods.cl4fedrec import Contrast
from covey.methods.pdc_frs import DataContribution
from covey.models.gru import GRU
from covey.models.local_graph import GraphAttention, LightGCN
from covey.models.mf import MF
from covey.objectives import Bce, GraphBce
from covey.server import Method, view
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

SOLVER = Local("adam", 0.02, epochs=2)
MODEL = LightGCN(4)


class TestLightGCN(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(MODEL, GraphBce(), catalogue, SOLVER)


class TestLightGCNWithoutLayers(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(LightGCN(4, layers=0), GraphBce(), catalogue, SOLVER)

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return self.method(catalogue), Method(MF(4), Bce(), catalogue, SOLVER)


class TestCL4FedRecOnLightGCN(Conformance):
    contrast = Contrast(users=5, history=6, view_lr=0.01)

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MODEL, GraphBce(), catalogue, SOLVER, (self.contrast,))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        off = replace(self.contrast, user_weight=0.0, item_weight=0.0)
        return replace(full, mechanisms=(off,)), replace(full, mechanisms=())


class TestPdcFrsOnLightGCN(Conformance):
    contribution = DataContribution(similarity="itself", count=5, aux_epochs=2, aux_batch=64)

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MODEL, GraphBce(), catalogue, SOLVER, (self.contribution,))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        full = self.method(catalogue)
        off = replace(self.contribution, count=0, user_weight=0.0, item_weight=0.0)
        return replace(full, mechanisms=(off,)), replace(full, mechanisms=())


def test_the_loss_by_hand() -> None:
    """Own items 1 and 3 are scored without themselves, a negative and a sent item with both."""
    torch.manual_seed(0)
    v_RD, u_D = torch.randn(5, 2), torch.randn(2)
    label_CL = torch.tensor([[0.0, 1.0, 0.7, 1.0, 0.0]])
    weight_CL = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])  # the last place is padding
    rows_CR = torch.arange(5)[None]
    batch = Batch(rows_CR, weight_CL > 0, None, label_CL, weight_CL)
    objective, model = GraphBce(), LightGCN(2, layers=1)
    params = {"items": v_RD[None], "user": u_D[None]}
    rng, ready = Rng.of(0, 1, torch.tensor([0])), objective.prepare(batch)
    got_C = objective.loss(model, params, batch, ready, rng, None)
    graphs = [[1, 3], [3], [1, 3], [1], [1, 3]]
    z_L = torch.stack(
        [v_RD[i] @ (u_D + v_RD[g].sum(0) / len(g) ** 0.5) / 2 for i, g in enumerate(graphs)]
    )
    each_L = F.binary_cross_entropy_with_logits(z_L, label_CL[0], reduction="none")
    torch.testing.assert_close(got_C[0], (each_L * weight_CL[0]).sum() / 5)
    # The same examples in another order, each naming its row.
    order = torch.tensor([[3, 0, 4, 2, 1]])
    moved = Batch(rows_CR, batch.real_CR, order, label_CL[:, order[0]], weight_CL[:, order[0]])
    again_C = objective.loss(model, params, moved, objective.prepare(moved), rng, None)
    torch.testing.assert_close(again_C, got_C)


def test_synthetic_users_are_sent_as_their_graphs_have_them() -> None:
    world = World.of(12, 40)
    contrast = Contrast(users=3, history=5)
    method = Method(MODEL, GraphBce(), world.catalogue, SOLVER, (contrast,))
    play = Play(method, world, Setting(cohort=12)).begin().go(1)
    seen = view(play.server, method, "contrast", Round(2, torch.arange(3)))
    sent_SD = contrast.send(seen).shared["users"]
    v_SND = seen.public["items"][seen.state["items"]]
    want_SD = (2 * seen.state["user"] + 2 * v_SND.sum(1) / 5**0.5) / 4
    torch.testing.assert_close(sent_SD, want_SD)


def test_what_does_not_fit() -> None:
    world = World.of(6, 40)
    for method, words in (
        (Method(MODEL, Bce(), world.catalogue, SOLVER), "LightGCN.*Bce"),
        (Method(GRU(4), GraphBce(), world.catalogue, SOLVER), "no graph"),
        (Method(MF(4), GraphBce(), world.catalogue, SOLVER), "no graph"),
        (Method(MODEL, GraphBce(), world.catalogue, Local(batch=8)), "batch = 0"),
    ):
        with pytest.raises(CoveyError, match=words):
            Play(method, world, Setting()).begin().go(1)


def test_attention_reads_the_same_examples() -> None:
    world = World.of(12, 40)
    method = Method(GraphAttention(4, neighbours=0), GraphBce(), world.catalogue, SOLVER)
    play = Play(method, world, Setting(cohort=12)).begin()
    before = play.server.public["w_items"]
    assert not torch.equal(play.go(1).server.public["w_items"], before)
