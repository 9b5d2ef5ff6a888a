"""FedFast: sampling and both averages by hand, odd numbers of clusters, and the suite."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import covey
from covey.aggregate.combine import ItemMean
from covey.contract.views import ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.ragged import Ragged, Rows
from covey.engine.method import Method
from covey.methods.fedfast import ActiveAverage, ActiveClients
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

MODEL = MF(2, upload_user=True)
SOLVER = Local("sgd", 0.5, epochs=2)


def method_of(catalogue: Catalogue, *active: ActiveClients) -> Method:
    return Method(MODEL, Bce(), catalogue, SOLVER, active, combine=ActiveAverage())


class TestFedFast(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, ActiveClients(3))


class TestFedFastOnNCF(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        made, model = method_of(catalogue, ActiveClients(40)), NCF(4, (4, 3), upload_user=True)
        return replace(made, model=model, weighting="examples")


class TestOneClusterAndEverybody(Conformance):
    """Without subordinates and a choice this is federated averaging with the same combine."""

    cohort = 25

    def method(self, catalogue: Catalogue) -> Method:
        return replace(method_of(catalogue, ActiveClients(1)), combine=ItemMean())

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        return self.method(catalogue), replace(self.method(catalogue), mechanisms=())


def seen(state: dict[str, Tensor], number: int = 1, ids: tuple[int, ...] = (0,)) -> ServerView:
    public, round = {"items": torch.zeros(1, 2)}, Round(number, torch.tensor(ids))
    return ServerView(public, state, round, 3, "active clients", MODEL, Bce(), Catalogue(1))


def clustered(*sizes: int) -> dict[str, Tensor]:
    cluster_N = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return {"ids": torch.arange(len(cluster_N)) + 10, "cluster": cluster_N}


def drawn(state: dict[str, Tensor], many: int, number: int = 1) -> Tensor:
    chosen_C = ActiveClients().select_cohort(seen(state, number, tuple(range(many))), state["ids"])
    assert chosen_C is not None and len(chosen_C.unique()) == many
    return chosen_C


def test_each_cluster_sends_as_many() -> None:
    state = clustered(50, 20, 3)
    sent_K = state["cluster"][drawn(state, 6) - 10].bincount()
    assert sent_K.tolist() == [2, 2, 2]
    sent_K = state["cluster"][drawn(state, 15) - 10].bincount()
    assert sent_K.tolist() == [6, 6, 3]  # who is missing in a small cluster comes from the others
    assert drawn(state, 73).tolist() == state["ids"].tolist()


def test_with_more_clusters_than_places_some_send_one() -> None:
    state = clustered(4, 4, 4, 4, 4)
    seen_K = set()
    for number in range(1, 30):
        cluster_C = state["cluster"][drawn(state, 2, number) - 10]
        assert len(cluster_C.unique()) == 2
        seen_K |= set(cluster_C.tolist())
    assert seen_K == {0, 1, 2, 3, 4}
    assert torch.equal(drawn(state, 2, 7), drawn(state, 2, 7))
    assert not torch.equal(drawn(state, 10, 1), drawn(state, 10, 2))


def test_subordinates_move_as_their_delegates_do() -> None:
    """Clusters {0, 1, 2} and {3, 4} by distance; only the first has delegates, 0 and 1."""
    far = 1000.0
    user_ND = torch.tensor([[0.0, 0], [1, 0], [2, 0], [far, 0], [far, 1]])
    state = {"ids": torch.arange(5), "user": user_ND, "moved": torch.arange(0)}
    after_PD = torch.tensor([[3.0, 4.0], [2.0, 0.0]])  # of 1 and 0
    upload = Upload(torch.tensor([1, 0]), torch.ones(2), {}, {"user": after_PD})
    active = ActiveClients(2, gamma=0.5, fade=0.5)
    state, public = active.receive_uploads(seen(state, 2, (1, 0)), upload)
    assert public == {} and state["moved"].tolist() == [2]
    # The delegates' mean move is (2, 2); 0.5 times 0.5 of it is (0.5, 0.5).
    expected = torch.tensor([[2.0, 0], [3, 4], [2.5, 0.5], [far, 0], [far, 1]])
    torch.testing.assert_close(state["user"], expected)
    assert state["tell/subordinates"] == 1 and state["tell/clusters"] == 1
    ids_C, own = active.hand_out(seen(state, 2), torch.arange(5))
    assert ids_C.tolist() == [2] and own["user"].tolist() == [[2.5, 0.5]]
    assert len(active.begin_round(seen(state, 3))["moved"]) == 0
    still, _ = replace(active, gamma=0.0).receive_uploads(
        seen({**state, "moved": ids_C[:0]}), upload
    )
    assert len(still["moved"]) == 0 and torch.equal(still["user"][2], state["user"][2])


def test_rows_are_weighted_by_how_far_they_moved() -> None:
    """Moves (1, -1) and (0, 6) of row 0 weigh 2 and 6; row 1 has one client, row 2 nobody."""
    items, rows = Ragged.of([[0], [0, 1]]), torch.tensor([[1.0, -1.0], [0.0, 6.0], [5.0, 5.0]])
    layer = torch.tensor([[1.0], [4.0]])
    update = {"items": Rows(items, rows, 3), "layer": layer}
    upload = Upload(torch.tensor([4, 2]), torch.tensor([1.0, 2.0]), update, {"user": rows[:2]})
    found, model = ActiveAverage().combine(upload, ("items", "layer"))
    expected = torch.tensor([[0.25, 4.25], [5.0, 5.0], [0.0, 0.0]])
    torch.testing.assert_close(found["items"], expected)
    torch.testing.assert_close(found["layer"], torch.tensor([3.0]))  # by the clients' weights
    assert model == {}


@pytest.mark.parametrize("clusters", [1, 200])
def test_any_number_of_clusters(clusters: int) -> None:
    """With more clusters than clients each is alone, and without subordinates nobody follows."""
    world = World.of(12, 20)
    play = Play(method_of(world.catalogue, ActiveClients(clusters)), world, Setting(cohort=5))
    state = play.begin().go(2).server.state["active clients"]
    assert int(state["cluster"].max()) + 1 == min(clusters, 12)
    assert int(state["tell/subordinates"]) == (7 if clusters == 1 else 0)


def test_the_server_knows_the_vectors_that_clients_have() -> None:
    world = World.of(12, 20)
    play = Play(method_of(world.catalogue, ActiveClients(2)), world, Setting(cohort=5)).begin()
    for _ in range(3):
        state = play.go(1).server.state["active clients"]
        own_CD = torch.cat([play.kept(c)["user"] for c in range(12)])
        torch.testing.assert_close(state["user"], own_CD, rtol=0, atol=0)


def test_impossible_options() -> None:
    for wrong in ({"clusters": 0}, {"gamma": -1.0}, {"fade": 1.5}, {"fade": -0.1}):
        with pytest.raises((CoveyError, ValueError)):
            ActiveClients(**wrong)
    world = World.of(5, 10)
    method = replace(method_of(world.catalogue, ActiveClients()), model=MF(4))
    with pytest.raises(CoveyError, match="upload_user"):
        Play(method, world, Setting()).begin()


SMALL = {"users": 60, "items": 40, "mean_items": 8.0}


def test_after_training() -> None:
    """Subordinates rank with the vectors that they were handed; a new item cannot join."""
    rec = covey.fit("fedfast", data=SMALL, rounds=2, run={"cohort": 20}, evaluate={"every": 9})
    assert rec.evaluate()["test"]["ndcg@20"] == pytest.approx(rec.result["test"]["ndcg@20"])
    assert len(rec.recommend_new(rec.items[:4], k=5)) == 5
    with pytest.raises(CoveyError, match="active clients"):
        rec.add_items(["new"], [(rec.users[0], "new")])


def test_a_privacy_budget_counts_every_round_for_everybody() -> None:
    """Any client may be drawn in each of the six rounds: 6 times 1 is over 4."""
    noise = {
        "use": "covey.privacy.uploads:NoisyUploads",
        "rows": "all",
        "epsilon": 1.0,
        "clip": 1.0,
    }
    active = {"use": "covey.methods.fedfast:ActiveClients"}
    options = dict(rounds=2, data=SMALL, run={"cohort": 20}, mechanism=[active, noise])
    with pytest.raises(CoveyError, match="6 messages"):
        covey.fit("fedfast", privacy={"max_epsilon": 4.0, "unprotected": "allow"}, **options)
