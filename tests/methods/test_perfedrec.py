"""PerFedRec: clusters by hand, the mixture of scores, what is neutral, and the suite."""

from dataclasses import replace

import pytest
import torch

from covey.aggregate.combine import ItemMean, Mean
from covey.contract.aggregation import Combine
from covey.core import Catalogue, CoveyError, Ragged, Rng, Round, Rows, Upload
from covey.engine.client.ranking import Ranker
from covey.methods.perfedrec import Adaptation, ClusteredGraph, UserClusters, tables
from covey.models.base import History
from covey.models.mf import MF
from covey.objectives import Bce, NextItemSoftmax
from covey.server import Method, view
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

OBJECTIVE = NextItemSoftmax(stored=20, local=1)
SOLVER = Local("adam", 0.05, epochs=2)


def method_of(
    catalogue: Catalogue,
    adaptation: Adaptation | None = None,
    clusters: int = 3,
    combine: Combine | None = None,
) -> Method:
    adaptation = adaptation or Adaptation(0.4, 0.3)
    model = ClusteredGraph(4, tuned=("items",) if adaptation.local else ())
    grouping, combine = UserClusters(clusters), combine or ItemMean()
    return Method(model, OBJECTIVE, catalogue, SOLVER, (adaptation,), grouping, combine)


class TestPerFedRec(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue)


class TestPerFedRecWithoutLocalModel(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return method_of(catalogue, Adaptation(1.0, 0.0), combine=Mean())


def test_the_global_model_alone_is_plain_federated_learning() -> None:
    """Clusters are still computed, and nobody uses them."""
    world = World.of(25, 40)
    off = method_of(world.catalogue, Adaptation(0.0, 0.0))
    plain = Method(off.model, OBJECTIVE, world.catalogue, SOLVER)
    one, two = (Play(m, world, Setting()).begin().go().outcome() for m in (off, plain))
    assert torch.equal(one["public"]["items"], two["public"]["items"])
    for part in ("metrics", "kept"):
        for key, value in two[part].items():
            torch.testing.assert_close(one[part][key], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("combine", [ItemMean(), Mean()])
def test_a_single_cluster_is_the_global_model(combine: Combine) -> None:
    world = World.of(20, 40)
    play = Play(method_of(world.catalogue, clusters=1, combine=combine), world, Setting(cohort=20))
    public = play.begin().go(4).server.public
    assert torch.equal(public["cluster 1/items"], public["items"])
    assert set(public) == {"items", "cluster 1/items"}


def test_each_model_moves_by_the_mean_update_of_its_clients() -> None:
    """Users 0 and 2 are of one kind, 1 and 3 of another; the first round has no clusters."""
    world = World.of(4, 40)
    method = replace(method_of(world.catalogue, clusters=2, combine=Mean()), solver=SOLVER)
    play = Play(method, world, Setting(cohort=4)).begin()
    ids_P, user_PD = torch.arange(4), torch.tensor([1.0, -9.0, 2.0, -8.0])[:, None].expand(4, 4)
    items = Ragged(torch.arange(4), torch.arange(5))
    moved = Rows(items, torch.ones(4, 4), 40)
    upload = Upload(ids_P, torch.ones(4), {"items": moved}, {"user": user_PD})
    seen = view(play.server, method, "user clusters", Round(1, ids_P))
    state, (everyone,) = method.grouping.groups(seen, upload)
    assert everyone.names == ("items",) and everyone.rows is None and everyone.public
    cluster_P = state["cluster"]
    assert cluster_P[0] == cluster_P[2] != cluster_P[1] and cluster_P[1] == cluster_P[3]
    again = replace(seen, state=state)
    after, groups = method.grouping.groups(again, upload)
    assert [g.prefix for g in groups] == ["cluster 1/", "cluster 2/", ""]
    first = groups[int(cluster_P[0]) - 1].rows
    assert first is not None and first.tolist() == [0, 2]
    assert torch.equal(after["cluster"], cluster_P)  # the numbers stay
    sent = method.grouping.send(replace(again, round=Round(2, torch.tensor([3, 77, 0]))))
    assert sent.each["cluster"].tolist() == [int(cluster_P[3]), 0, int(cluster_P[0])]


def test_clusters_have_models_of_their_own() -> None:
    world = World.of(25, 40)
    play = Play(method_of(world.catalogue), world, Setting(cohort=25)).begin().go(4)
    public = {k: v[None] for k, v in play.server.public.items()}
    found = tables(public)
    assert len(found) == 4 and not torch.equal(found[1], found[2])
    kept = {play.kept(c)["cluster"].item() for c in range(25)}
    assert kept == {1.0, 2.0, 3.0}


def test_weight_decay_does_not_move_the_number_of_a_cluster() -> None:
    world = World.of(12, 40)
    solver = Local("adam", 0.05, epochs=2, decay=0.1)
    method = replace(method_of(world.catalogue), solver=solver)
    play = Play(method, world, Setting(cohort=12)).begin().go(3)
    assert {play.kept(c)["cluster"].item() for c in range(12)} <= {1.0, 2.0, 3.0}


def test_training_begins_at_the_mixture() -> None:
    """Weights 0.4 and 0.2, so that half of what is not local is the cluster's."""
    world = World.of(6, 40)
    play = Play(method_of(world.catalogue), world, Setting(cohort=6)).begin().go(3)
    program = play.program
    public = {k: v[None] for k, v in play.server.public.items()}
    seen = replace(_client_view(play), params=public)
    got = Adaptation(0.4, 0.2).renew(seen)
    want = (found := tables(public))[0][0] / 2 + found[2][0] / 2
    torch.testing.assert_close(got["items"][0], want)
    assert torch.equal(got["items"][1], found[0][0])  # in no cluster yet
    assert got["cluster"].tolist() == [[2.0], [0.0]]
    assert program.model.kept == ("user", "cluster")


def _client_view(play: Play):  # type: ignore[no-untyped-def]
    from covey.contract.views import ClientView
    from covey.core import Sent

    ids_C = torch.arange(2)
    data = play.world.data.training.take(ids_C)
    received = Sent(each={"cluster": torch.tensor([2, 0])})
    parts = (play.method.model, play.method.objective, play.world.catalogue)
    return ClientView({}, data, received, Rng.of(0, 1, ids_C), *parts)


def test_scores_are_mixed() -> None:
    """Global, cluster and local weigh 0.4, 0.4 and 0.2; the client has changed one row."""
    adaptation, model = Adaptation(0.4, 0.2), ClusteredGraph(2)
    one, two = torch.randn(2, 1, 3, 2)
    user, history = torch.randn(1, 2), Ragged.of([[0, 2]])
    params = {"items": one, "cluster 1/items": two, "user": user, "cluster": torch.ones(1, 1)}
    own = Rows(Ragged.of([[1]]), torch.tensor([[0.5, -1.0]]), 3)
    rng = Rng.of(0, 1, torch.tensor([0]))
    ranker = Ranker.of(model, params, {"tuned/items": own}, rng, (adaptation,))
    scores = []
    for table in (one, two):
        u_CD = model.user({"items": table, "user": user}, History.of(history), rng, False)
        scores.append((u_CD, u_CD @ table[0].mT))
    want_CI = 0.5 * scores[0][1] + 0.5 * scores[1][1]
    want_CI[0, 1] += 0.2 * (scores[0][0][0] * own.values[0]).sum()
    u_CE = ranker.user(history)
    torch.testing.assert_close(ranker.all_items(u_CE), want_CI)
    torch.testing.assert_close(ranker.some_items(u_CE, torch.tensor([[1, 2]])), want_CI[:, 1:])
    params["cluster"] = torch.zeros(1, 1)
    nobody = Ranker.of(model, params, {}, rng, (adaptation,))
    torch.testing.assert_close(nobody.all_items(nobody.user(history)), scores[0][1])


def test_user_vectors_are_declared() -> None:
    world = World.of(6, 40)
    play = Play(method_of(world.catalogue), world, Setting()).begin()
    declared = {(d.step, d.name) for d in play.program.disclosures()}
    assert {("train", "update/items"), ("train", "model/user")} <= declared


@pytest.mark.parametrize("weights", [(-0.1, 0.0), (0.7, 0.4), (0.0, -1.0)])
def test_weights_that_are_none(weights: tuple[float, float]) -> None:
    with pytest.raises(CoveyError, match="weights"):
        Adaptation(*weights)


def test_what_does_not_fit() -> None:
    world = World.of(6, 40)
    with pytest.raises(CoveyError, match="clusters"):
        UserClusters(0)
    method = method_of(world.catalogue)
    with pytest.raises(CoveyError, match="tuned"):
        Play(replace(method, model=ClusteredGraph(4, tuned=())), world, Setting()).begin()
    with pytest.raises(CoveyError, match="tuned"):
        Play(replace(method, mechanisms=(Adaptation(0.5, 0.0),)), world, Setting()).begin()
    alone = Method(MF(4), Bce(), world.catalogue, SOLVER, (), UserClusters(2))
    with pytest.raises(CoveyError, match="ClusteredGraph"):
        Play(alone, world, Setting()).begin().go(1)
