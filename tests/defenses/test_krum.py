"""Krum: against a loop over items, by hand, and inside co-clustering."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Mean
from covey.contract.attack import AttackView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Upload
from covey.core.ragged import FieldDict, Ragged, Rows, offsets_of
from covey.defenses import krum
from covey.defenses import rows as row_rules
from covey.defenses.krum import Krum, distances
from covey.engine.method import Method
from covey.methods.cofedrec import CoClusters, ItemContrast
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World


class TestKrumOnRowsAndLayers(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return Method(
            NCF(4, (4, 3)), Bce(), catalogue, Local("adam", 0.01, epochs=2), combine=Krum(0.2)
        )


def co_clustered(catalogue: Catalogue) -> Method:
    model = LinearScore(4, keep_items=True)
    solver = Local(
        "sgd",
        0.1,
        1,
        16,
        (("score", "bias"), ("items",)),
        rates={"items": 0.2},
        per_item=("items",),
    )
    return Method(
        model,
        Bce(saturating=True),
        catalogue,
        solver,
        (ItemContrast(0.05),),
        CoClusters(3),
        Krum(0.2),
    )


class TestKrumInCoClusters(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return co_clustered(catalogue)


def random_rows(clients: int, items: int, dim: int, seed: int) -> Rows:
    """Each client touches a random set; no client has item 0, one has item 1, all have item 2."""
    torch.manual_seed(seed)
    touched_CI = torch.rand(clients, items) < torch.rand(items)
    touched_CI[:, 0], touched_CI[:, 1], touched_CI[:, 2] = False, False, True
    touched_CI[0, 1] = True
    ids = Ragged(touched_CI.nonzero()[:, 1], offsets_of(touched_CI.sum(1)))
    return Rows(ids, torch.randn(len(ids.values), dim, dtype=torch.float64), items)


def naive(rows: Rows, weight_C: Tensor, share: float) -> Tensor:
    out = torch.zeros(rows.height, rows.values.shape[1], dtype=rows.values.dtype)
    for item in range(rows.height):
        at = (rows.items.values == item).nonzero()[:, 0]
        if len(at):
            out[item] = naive_one(rows.values[at], weight_C[rows.items.owner[at]], share)
    return out


def naive_one(g_nP: Tensor, weight_n: Tensor, share: float) -> Tensor:
    n = len(g_nP)
    k = n - int(share * n) - 2
    if k < 1:
        return (g_nP * weight_n[:, None].to(g_nP)).sum(0) / weight_n.sum().to(g_nP)
    scores = []
    for a in range(n):
        apart = sorted(float(((g_nP[a] - g_nP[b]) ** 2).sum()) for b in range(n) if b != a)
        scores.append(sum(apart[:k]))
    return g_nP[scores.index(min(scores))]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.45])
@pytest.mark.parametrize("pairs", [1 << 22, 50])
def test_rows_are_judged_item_by_item(
    share: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_rules, "NUMBERS_AT_ONCE", pairs)
    for seed in range(5):
        rows = random_rows(17, 30, 3, seed)
        weight_C = torch.rand(17) + 0.5
        update, model = Krum(share).combine(
            Upload(torch.arange(17), weight_C, {"items": rows}), ["items"]
        )
        torch.testing.assert_close(update["items"], naive(rows, weight_C, share))
        assert not model and not update["items"][0].any()


def test_dense_uploads_are_judged_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krum, "PART", 4)
    torch.manual_seed(0)
    w_CAB, table_CID = torch.randn(9, 5, 2), torch.randn(9, 7, 3)
    upload = Upload(
        torch.arange(9), torch.ones(9), {"w": w_CAB, "b": w_CAB[:, 0]}, {"items": table_CID}
    )
    update, model = Krum(0.25).combine(upload, ["w", "items"])
    assert set(update) == {"w"}
    for got, all_C in ((update["w"], w_CAB), (model["items"], table_CID)):
        assert torch.equal(got.flatten(), naive_one(all_C.flatten(1), torch.ones(9), 0.25))


def test_by_hand() -> None:
    """Five uploads, f = 1, so two neighbours: sums of squares 1+4, 1+1, 1+4, then far away."""
    g_C1 = torch.tensor([[0.0], [1.0], [2.0], [10.0], [-50.0]])
    update, _ = Krum(0.2).combine(Upload(torch.arange(5), torch.ones(5), {"w": g_C1}), ["w"])
    assert update["w"].tolist() == [1.0]


def test_two_nearest_tie_and_the_first_is_taken() -> None:
    g_C2 = torch.tensor([[5.0, 5.0], [0.1, 0.2], [0.3, 0.7]])
    update, _ = Krum(0.0).combine(Upload(torch.arange(3), torch.ones(3), {"w": g_C2}), ["w"])
    torch.testing.assert_close(update["w"], g_C2[1])


def test_a_huge_upload_does_not_blur_the_others() -> None:
    g_nP = torch.cat([1 + 1e-4 * torch.arange(4.0)[:, None].expand(4, 3), torch.full((1, 3), 1e30)])
    d_nn = distances(g_nP[None])[0]
    torch.testing.assert_close(
        d_nn[0, 3], torch.tensor(2.7e-7, dtype=torch.float64), rtol=0.01, atol=0
    )


def test_majority_of_attackers_is_refused() -> None:
    with pytest.raises(CoveyError, match="tolerates"):
        Krum(0.5)


class Wild:
    """Uploads a table far off in the honest clients' direction, so that it joins their group."""

    name, knowledge = "wild", ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        table_ID = view.download.public.shared["items"]  # its own, in the place of a shared one
        every = Ragged(torch.arange(len(table_ID)), torch.tensor([0, len(table_ID)]))
        return {}, replace(
            upload, update={**upload.update, "items": Rows(every, 1e3 * table_ID, len(table_ID))}
        )


@pytest.mark.parametrize("wire", [False, True])
def test_one_wild_upload_does_not_move_the_delivered_model(wire: bool) -> None:
    """It does move a mean: the same run with Mean hands out a table a hundred times too large."""
    world = World.of(12, 40, attackers=1)
    largest = {}
    for name, combine in (("mean", Mean()), ("krum", Krum(0.2))):
        method = replace(co_clustered(world.catalogue), combine=combine)
        play = Play(method, world, Setting(cohort=13, wire=wire), Wild()).begin().go(1)
        largest[name] = max(float(play.kept(c)["items"].abs().max()) for c in range(12))
        assert float(play.server.public["items"].abs().max()) < 10 or name == "mean"
    assert largest["krum"] < 10 and largest["mean"] > 100
