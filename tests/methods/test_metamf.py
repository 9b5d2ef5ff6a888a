"""MetaMF: scores by hand, back-propagation against one graph of everything, and the suite."""

from dataclasses import replace

import pytest
import torch

import covey
from covey.aggregate.grouping import Nobody
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import Ragged, Rows
from covey.core.rng import Rng
from covey.engine.method import Method
from covey.engine.server_state import view as view_of
from covey.methods.metamf import META, MetaMF, MetaNetwork, generated, rows_backward, tables
from covey.models.base import NO_HISTORY
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

MODEL = MetaMF(4, 2, 3, 6)
PLAIN = MetaNetwork(5, 7, "sgd", 0.5, decay=0.0, clip=0.0)


def method_of(catalogue: Catalogue, network: MetaNetwork) -> Method:
    solver = Local("sgd", 1.0, epochs=1)
    return Method(MODEL, Bce(), catalogue, solver, (network,), Nobody())


def play_of(network: MetaNetwork, cohort: int = 20) -> Play:
    world = World.of(20, 30)
    setting = Setting(cohort=cohort, dtype=torch.float64)
    return Play(method_of(world.catalogue, network), world, setting).begin()


class TestMetaMF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, MetaNetwork(5, 7, lr=0.01))


class TestMetaMFByExamples(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return replace(method_of(catalogue, replace(PLAIN, lr=0.05)), weighting="examples")


def test_a_score_by_hand() -> None:
    """Row 2, R = 3 and W1 = 0.5 give 3, b1 = -1 gives 2, W2 = -4 and b2 = 10 give 2; row -1: 10."""
    params = {"network": torch.tensor([[3.0, 0.5, -1.0, -4.0, 0.0]])}
    params["offset"] = torch.tensor([[0.0, 0.0, 0.0, 0.0, 10.0]])
    score = MetaMF(1, 1, 1, 1).score(params, params["network"], torch.tensor([[[2.0], [-1.0]]]))
    assert score.tolist() == [[2.0, 10.0]]


def test_a_round_is_a_step_on_the_mean_loss_of_all() -> None:
    """The gradient of the whole chain, from users to losses, in one graph without any message."""
    play = play_of(PLAIN)
    net = {k.removeprefix(META): v for k, v in play.server.state["meta network"].items()}
    leaves = {k: v.clone().requires_grad_() for k, v in net.items()}
    leaves["output"] = play.server.public["output"].clone().requires_grad_()
    made = generated(leaves, leaves["users"])
    table_PID = made["features"] @ leaves["output"][:, :-1].mT + leaves["output"][:, -1]
    table_PID = table_PID.view(20, 30, 2)
    data, losses = play.world.data.training, []
    rng = Rng.of(play.setting.seed, 1, torch.arange(20)).fold("examples")
    examples = Bce().examples(data.items, data.avoid, 30, rng)
    offset = torch.zeros_like(made["network"][:1])
    for c in range(20):
        mine = examples.items.owner == c
        params = {"network": made["network"][c : c + 1], "offset": offset}
        v_1LD = table_PID[c : c + 1, examples.items.values[mine]]
        logit_L = MODEL.score(params, MODEL.user(params, NO_HISTORY, rng, True), v_1LD)[0]
        weight_L, label_L = examples.weight[mine].double(), examples.label[mine].double()
        each_L = torch.nn.functional.softplus(logit_L) - label_L * logit_L
        losses.append((each_L * weight_L).sum() / weight_L.sum().clamp(min=1))
    torch.stack(losses).mean().backward()
    after = play.go(1).server
    state = {k.removeprefix(META): v for k, v in after.state["meta network"].items()}
    for name, leaf in leaves.items():
        grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        new = after.public["output"] if name == "output" else state[name]
        torch.testing.assert_close(new, leaf.detach() - 0.5 * grad, rtol=0, atol=1e-12)
        assert bool((grad != 0).any()), name


def test_clients_receive_what_the_server_makes_of_their_vectors() -> None:
    play = play_of(PLAIN).go(2)
    net = {k.removeprefix(META): v for k, v in play.server.state["meta network"].items()}
    expected = generated(net, net["users"])
    for c in (0, 7, 19):
        kept = play.kept(c)
        torch.testing.assert_close(kept["network"][0], expected["network"][c])
        torch.testing.assert_close(kept["features"][0], expected["features"][c])
        assert sum(x.numel() for x in kept.values()) < 60  # no item table


def test_with_one_vector_for_all_everybody_receives_the_same() -> None:
    play = play_of(PLAIN)
    state = dict(play.server.state["meta network"])
    state[f"{META}users"] = state[f"{META}users"][:1].expand(20, -1).clone()
    seen = view_of(play.server.with_state({"meta network": state}), play.method, "meta network",
                   play.cohort(1))  # fmt: skip
    ids_C, own = PLAIN.hand_out(seen, torch.arange(20))
    params = {**own, "output": seen.public["output"][None], "items": seen.public["items"][None]}
    table_CID = PLAIN.materialise(params)["items"]
    assert ids_C.tolist() == list(range(20))
    assert table_CID.shape == (20, 30, 2) and bool((table_CID == table_CID[:1]).all())
    assert bool((own["network"] == own["network"][:1]).all())
    different = play.kept(1)["features"] - play.kept(2)["features"]
    assert float(different.abs().max()) > 0  # with vectors of their own they do not


def test_a_table_does_not_depend_on_who_else_is_made_one() -> None:
    output_TH, features_PH = torch.randn(60, 17), torch.randn(70, 16)
    whole = tables(output_TH, features_PH)
    for many in (1, 3, 33):
        cut = torch.cat([tables(output_TH, part) for part in features_PH.split(many)])
        assert torch.equal(whole, cut)


def test_the_gradient_of_rows_by_hand() -> None:
    """One client, features (1, 2), two items of rank 1; the gradient of the second row is 3."""
    output_TH = torch.tensor([[1.0, 0.0, 9.0], [5.0, 7.0, 9.0]])
    grad = Rows(Ragged.of([[1]]), torch.tensor([[3.0]]), 2)
    by_output, by_features = rows_backward(output_TH, torch.tensor([[1.0, 2.0]]), grad)
    assert by_output.tolist() == [[0, 0, 0], [3, 6, 3]] and by_features.tolist() == [[15, 21]]


def test_the_gradient_is_clipped_and_parameters_decay() -> None:
    """Without examples the gradient is zero, so only decay moves the parameters."""
    play = play_of(replace(PLAIN, decay=0.1, clip=1.0))
    round, none = play.cohort(1), Ragged.of([[]] * 20)
    rows = Rows(none, torch.zeros(0, 2, dtype=torch.float64), 30)
    offset = play.server.public["offset"].expand(20, -1)
    upload = Upload(round.ids_C, torch.ones(20), {"items": rows, "offset": offset})
    seen = view_of(play.server, play.method, "meta network", round)
    network = replace(PLAIN, decay=0.1, clip=1.0)
    _, public = network.receive_uploads(seen, upload)
    torch.testing.assert_close(public["output"], 0.95 * seen.public["output"])
    upload = replace(upload, update={"items": rows, "offset": offset + 1e6})
    state, _ = replace(network, decay=0.0).receive_uploads(seen, upload)
    moved = [state[k] - seen.state[k] for k in state if k.startswith(META)]
    assert float(torch.stack([x.norm() for x in moved]).norm()) == pytest.approx(0.5)
    assert network.receive_uploads(seen, replace(upload, weight_C=torch.zeros(20))) == (
        seen.state,
        {},
    )


def test_impossible_options() -> None:
    for wrong in ({"lr": -1.0}, {"decay": -1.0}, {"clip": -1.0}, {"width": 0}, {"memory": 0}):
        with pytest.raises((CoveyError, ValueError)):
            MetaNetwork(**wrong)
    with pytest.raises((CoveyError, ValueError)):
        MetaMF(rank=0)
    world = World.of(5, 10)
    method = replace(method_of(world.catalogue, PLAIN), model=MF(4))
    with pytest.raises(CoveyError, match="MetaMF"):
        Play(method, world, Setting()).begin()


SMALL = {"users": 60, "items": 40, "mean_items": 8.0}


def test_after_training() -> None:
    """It ranks as it was measured; a new user gets a table too; items cannot join."""
    rec = covey.fit(
        "metamf",
        data=SMALL,
        rounds=1,
        run={"cohort": 20},
        evaluate={"every": 9},
        model={"features": 8},
    )
    assert rec.evaluate()["test"]["ndcg@20"] == pytest.approx(rec.result["test"]["ndcg@20"])
    assert len(rec.recommend_new(rec.items[:4], k=5)) == 5
    table_ID = rec.scorer.server.public["items"]
    assert table_ID.shape == (40, 8) and bool((table_ID != 0).any())
    with pytest.raises(CoveyError, match="everybody trains"):
        rec.add_items(["new"], [(rec.users[0], "new")])


def test_secure_sums_are_refused() -> None:
    with pytest.raises(CoveyError, match="meta network"):
        covey.fit("metamf", data=SMALL, rounds=1, fleet={"secure": True})
