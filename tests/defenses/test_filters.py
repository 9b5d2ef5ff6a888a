"""Clipping of clients, minimum support, HiCS and UNION's filter: by hand, against loops, limits."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import ItemMean, Sum
from covey.aggregate.step import Add
from covey.contract.aggregation import Combine
from covey.contract.mechanism import Mechanism
from covey.contract.views import ServerView
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Upload
from covey.core.ragged import FieldDict, Ragged, Rows, offsets_of
from covey.defenses.clip import ClipRows
from covey.defenses.clip_clients import ClipClients
from covey.defenses.hics import Bank, HiCS
from covey.defenses.median import Median
from covey.defenses.support import MinimumSupport
from covey.defenses.union import Union, spreads, uniformity
from covey.engine.method import Method
from covey.engine.rounds import Server, start, view
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World
from robust_loops import random_rows, upload_of


def filtered(mechanism: Mechanism, upload: Upload, items_ID: Tensor | None = None) -> Upload:
    method = Method(MF(2), Bce(), Catalogue(5), mechanisms=(mechanism,))
    server = start(method) if items_ID is None else Server({"items": items_ID})
    return mechanism.filter_uploads(
        view(server, method, mechanism.name, Round(1, upload.ids_C)), upload
    )


def plain(catalogue: Catalogue) -> Method:
    return Method(NCF(4, (4, 3)), Bce(), catalogue, Local("sgd", 0.5, epochs=2))


@dataclass(frozen=True)
class Look(Mechanism):
    """Reads single uploads and changes nothing, so that sums are not folded chunk by chunk."""

    name: str = "look"

    def filter_uploads(self, view: ServerView, upload: Upload) -> Upload:
        return upload


def looked_at(catalogue: Catalogue) -> Method:
    return replace(plain(catalogue), mechanisms=(Look(),))


class TestClippedClients(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        filters = (ClipRows(2.0, relative=True), ClipClients(0.01), MinimumSupport(2))
        return replace(plain(catalogue), mechanisms=filters)

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        off = (ClipRows(1e9), ClipClients(1e9), MinimumSupport(1))
        return replace(plain(catalogue), mechanisms=off), looked_at(catalogue)


class TestHiCS(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return replace(
            plain(catalogue),
            combine=HiCS(("row", "client", "item"), (2.0, 2.0, 2.0)),
            server_step=Bank(0.5),
        )

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        off = HiCS(("row", "item"), (1e9, 1e9), relative=False)
        return replace(plain(catalogue), combine=off, server_step=Bank(1.0)), looked_at(catalogue)


class TestUnion(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return replace(plain(catalogue), mechanisms=(Union(0.2, items=20, draws=10),))


def example() -> Upload:
    rows = Rows(Ragged.of([[0, 3], [3], []]), torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.6, 0.8]]), 5)
    w_CA = torch.tensor([[0.0], [0.0], [2.0]])
    return Upload(torch.arange(3), torch.ones(3), {"items": rows, "w": w_CA})


def test_clients_are_clipped_as_a_whole() -> None:
    """Norms 5, 1 and 2; the median is 2."""
    out = filtered(ClipClients(1.0), example()).update
    torch.testing.assert_close(
        out["items"].values, torch.tensor([[0.6, 0.0], [0.0, 0.8], [0.6, 0.8]])
    )
    torch.testing.assert_close(out["w"], torch.tensor([[0.0], [0.0], [1.0]]))
    relative = filtered(ClipClients(0.5, relative=True), example()).update
    torch.testing.assert_close(relative["items"].values, out["items"].values)


def test_rows_are_clipped_against_their_median() -> None:
    """Row norms 3, 4 and 1; of the other parameter those that are not 0: 2."""
    out = filtered(ClipRows(0.5, relative=True), example()).update
    torch.testing.assert_close(
        out["items"].values, torch.tensor([[1.5, 0.0], [0.0, 1.5], [0.6, 0.8]])
    )
    torch.testing.assert_close(out["w"], torch.tensor([[0.0], [0.0], [1.0]]))


def test_rounds_of_zeros_stay_zero() -> None:
    rows = Rows(Ragged.of([[1], [1]]), torch.zeros(2, 2), 5)
    for mechanism in (ClipRows(1.0, relative=True), ClipClients(1.0, relative=True)):
        assert not filtered(mechanism, upload_of(rows)).update["items"].values.any()
    assert not HiCS().combine(upload_of(rows), ["items"])[0]["items"].any()


def test_support_against_a_loop() -> None:
    rows = random_rows(9, 30, 2, 5)
    out = filtered(MinimumSupport(3), upload_of(rows)).update["items"]
    keep = [int((rows.items.values == i).sum()) >= 3 for i in rows.items.values]
    assert torch.equal(out.values, rows.values[keep]) and torch.equal(
        out.items.values, rows.items.values[keep]
    )
    assert [len(x) for x in out.items.values.split(out.items.lengths.tolist())] == [
        sum(keep[a:b])
        for a, b in zip(
            rows.items.offsets[:-1].tolist(), rows.items.offsets[1:].tolist(), strict=True
        )
    ]
    untouched = ItemMean().combine(upload_of(out), ["items"])[0]["items"]
    assert (
        not untouched[1].any() and untouched[2].any()
    )  # one client touched item 1, all of them item 2


def test_support_takes_a_lone_row_that_the_median_must_accept_and_breaks_by_three_attackers() -> (
    None
):
    def moved(attackers: int) -> float:
        rows = Rows(
            Ragged.of([[0]] * 5 + [[0, 1]] * attackers), torch.ones(5 + 2 * attackers, 1), 2
        )
        return float(
            Median().combine(filtered(MinimumSupport(3), upload_of(rows)), ["items"])[0]["items"][1]
        )

    assert moved(1) == moved(2) == 0
    assert moved(3) == 1
    rows = Rows(Ragged.of([[0]] * 5 + [[1]]), torch.ones(6, 1), 2)
    assert float(Median().combine(upload_of(rows), ["items"])[0]["items"][1]) == 1


def test_hics_by_hand() -> None:
    """Rows of norm 3 and 4 become 2 and 2; only their sum over item 0 exceeds the second bound."""
    rows = Rows(Ragged.of([[0, 3], [0, 3]]), torch.tensor([[3.0], [4.0], [1.0], [0.5]]), 5)
    combine = HiCS(("row", "item"), (2.0, 2.5), relative=False, scale="sum")
    update, _ = combine.combine(Upload(torch.arange(2), torch.ones(2), {"items": rows}), ["items"])
    assert update["items"].flatten().tolist() == [2.5, 0, 0, 2.5, 0]
    mean, _ = replace(combine, scale="mean").combine(upload_of(rows), ["items"])
    assert mean["items"].flatten().tolist() == [1.5, 0, 0, 1.25, 0]


def test_hics_levels_against_a_loop() -> None:
    rows = random_rows(9, 20, 3, 1)
    got = HiCS(("row", "client"), (1.5, 1.2)).combine(upload_of(rows), ["items"])[0]["items"]
    norms = sorted(float(v.norm()) for v in rows.values)
    bound = 1.5 * norms[(len(norms) - 1) // 2]
    clipped = torch.stack([v * min(1.0, bound / float(v.norm())) for v in rows.values])
    clients = clipped.split(rows.items.lengths.tolist())
    whole = sorted(float(c.norm()) for c in clients)
    again = [
        c * min(1.0, 1.2 * whole[(len(whole) - 1) // 2] / max(float(c.norm()), 1e-30))
        for c in clients
    ]
    expected = ItemMean().combine(upload_of(replace(rows, values=torch.cat(again))), ["items"])[0][
        "items"
    ]
    torch.testing.assert_close(got, expected)


def test_hics_works_on_a_long_row_and_not_on_many_of_usual_length() -> None:
    """A row of 600 times the usual size counts for two; 8 of 24 attackers of usual size pass."""
    honest = torch.ones(16, 1)

    def combined(bad: Tensor) -> float:
        rows = Rows(Ragged.of([[0]] * (16 + len(bad))), torch.cat([honest, bad]), 1)
        return float(HiCS().combine(upload_of(rows), ["items"])[0]["items"])

    assert combined(torch.tensor([[-600.0]])) == pytest.approx((16 - 2) / 17)
    assert combined(-torch.ones(8, 1)) == pytest.approx((16 - 8) / 24)


def test_bank_by_hand() -> None:
    """Half of the rows that hold something go out, the largest; the others save up."""
    params, update = (
        {"items": torch.zeros(4, 1), "w": torch.zeros(2)},
        torch.tensor([[1.0], [-3.0], [0.0], [2.0]]),
    )
    memory, out = Bank(0.5).step({}, params, {"items": update, "w": torch.ones(2)})
    assert out["items"].flatten().tolist() == [0, -3, 0, 2] and out["w"].tolist() == [1, 1]
    assert memory["items"].flatten().tolist() == [1, 0, 0, 0]
    memory, out = Bank(0.5, decay=0.5).step(
        memory, out, {"items": torch.tensor([[1.0], [0.2], [0.0], [0.1]])}
    )
    assert out["items"].flatten().tolist() == [1.5, pytest.approx(-2.8), 0, 2]  # two of three
    assert memory["items"].flatten().tolist() == [0, 0, 0, pytest.approx(0.1)]
    plain = Add().step({}, params, {"items": update})[1]["items"]
    assert torch.equal(Bank(1.0).step({}, params, {"items": update})[1]["items"], plain)


def test_bank_loses_nothing_but_an_attacker_can_wait() -> None:
    """Waiting rows are applied in the end; the longest row, the attacker's, is always the first."""
    torch.manual_seed(0)
    memory, params, sent = {}, {"items": torch.zeros(10, 2)}, torch.zeros(10, 2)
    for _ in range(20):
        update = torch.randn(10, 2)
        update[7] = 100.0
        memory, params = Bank(0.3).step(memory, params, {"items": update})
        sent += update
        assert not memory["items"][7].any()
    torch.testing.assert_close(params["items"] + memory["items"], sent)


def test_options_are_checked() -> None:
    for wrong in (
        lambda: HiCS(("item", "row")),
        lambda: HiCS(("row",)),
        lambda: HiCS(bounds=(0.0, 1.0)),
    ):
        with pytest.raises(CoveyError, match="hics"):
            wrong()
    with pytest.raises(CoveyError, match="bank"):
        Bank(0.0)
    with pytest.raises(CoveyError, match="at least 1"):
        MinimumSupport(0)
    with pytest.raises(CoveyError, match="tolerates"):
        Union(0.5)


def test_uniformity_against_a_loop() -> None:
    torch.manual_seed(1)
    base_SD, rows = torch.randn(12, 3, dtype=torch.float64), random_rows(5, 12, 3, 2)
    got = uniformity(base_SD, rows, 0.5)
    for client, dense_SD in enumerate(rows.dense()):
        table = base_SD + 0.5 * dense_SD
        far = [
            float((a - b).norm())
            for i, a in enumerate(table)
            for j, b in enumerate(table)
            if i != j
        ]
        assert float(got[client]) == pytest.approx(sum(far) / (12 * 11), abs=1e-7)


def test_spreads_against_a_loop() -> None:
    torch.manual_seed(1)
    x_BC = torch.rand(4, 9)
    one_B, two_B, upper_BC = spreads(x_BC)

    def square(x: Tensor) -> float:
        return float(((x - x.mean()) ** 2).sum())

    for x_C, one, two, upper_C in zip(x_BC, one_B, two_B, upper_BC, strict=True):
        s = x_C.sort().values
        best = min(square(s[:k]) + square(s[k:]) for k in range(1, 9))
        assert float(one) == pytest.approx(square(x_C), abs=1e-6) and float(two) == pytest.approx(
            best, abs=1e-6
        )
        assert square(x_C[upper_C]) + square(x_C[~upper_C]) == pytest.approx(best, abs=1e-6)


def collapsing(honest: int, attackers: int, strength: float) -> tuple[Tensor, Upload]:
    """Attackers pull all items towards the middle; honest clients move some items a little."""
    torch.manual_seed(4)
    base_ID = torch.randn(40, 4)
    touched_CI = torch.rand(honest, 40) < 0.3
    ids = Ragged(touched_CI.nonzero()[:, 1], offsets_of(touched_CI.sum(1)))
    mild = Rows(ids, 0.05 * torch.randn(len(ids.values), 4), 40)
    every = Ragged(torch.arange(40).repeat(attackers), torch.arange(attackers + 1) * 40)
    bad_TD = (-strength * (base_ID - base_ID.mean(0))).repeat(attackers, 1)
    rows = Rows(Ragged.cat([mild.items, every]), torch.cat([mild.values, bad_TD]), 40)
    return base_ID, upload_of(rows)


def test_union_leaves_out_those_who_make_items_alike() -> None:
    base_ID, upload = collapsing(20, 3, 0.3)
    assert filtered(Union(items=40), upload, base_ID).ids_C.tolist() == list(range(20))


def test_union_breaks_where_it_cannot_tell_or_where_most_are_malicious() -> None:
    """Gentle attackers are not seen; of a majority the honest clients are the smaller group."""
    base_ID, gentle = collapsing(20, 3, 0.0005)
    assert set(filtered(Union(items=40), gentle, base_ID).ids_C.tolist()) >= {20, 21, 22}
    base_ID, many = collapsing(5, 15, 0.3)
    assert not set(filtered(Union(items=40), many, base_ID).ids_C.tolist()) & {0, 1, 2, 3, 4}


def test_known_number_of_attackers_costs_honest_clients() -> None:
    """With a known share some clients are left out of every round, even without attackers."""
    base_ID, honest = collapsing(20, 0, 0.0)
    assert len(filtered(Union(0.45, items=40), honest, base_ID)) < 20
    assert len(filtered(Union(items=40), honest, base_ID)) == 20


class Collapse:
    """Makes all items alike."""

    name, knowledge = "collapse", ""

    def poison(self, view: object, upload: Upload) -> tuple[FieldDict, Upload]:
        table_ID = view.download.public.shared["items"]  # type: ignore[attr-defined]
        many, height = len(upload), len(table_ID)
        every = Ragged(torch.arange(height).repeat(many), torch.arange(many + 1) * height)
        rows = Rows(every, (-0.5 * (table_ID - table_ID.mean(0))).repeat(many, 1), height)
        return {}, replace(upload, update={**upload.update, "items": rows})


@pytest.mark.parametrize("wire", [False, True])
def test_whom_a_filter_left_out_is_noted(wire: bool) -> None:
    world = World.of(14, 40, attackers=2)
    method = Method(
        MF(4),
        Bce(),
        world.catalogue,
        Local("sgd", 0.1, epochs=1),
        (Union(items=40),),
        combine=Sum(),
    )
    play = Play(method, world, Setting(cohort=16, wire=wire), Collapse()).begin().go(1)
    assert sorted(play.server.state["filter"]["left out"].tolist()) == [14, 15]
    assert int(play.server.state["filter"]["tell/left out"]) == 2


@dataclass(frozen=True)
class Spoilt:
    """Uploads with one number that is none, or is so large that a sum of two would be none."""

    part: str
    value: float
    name: str = "spoilt"
    knowledge: str = ""

    def poison(self, view: object, upload: Upload) -> tuple[FieldDict, Upload]:
        was = upload.update[self.part]
        wide = (
            torch.zeros(len(upload), was.values.shape[1]) if isinstance(was, Rows) else was.clone()
        )
        wide[..., -1] = self.value
        now = (
            Rows(Ragged.of([[0]] * len(upload)), wide, was.height)
            if isinstance(was, Rows)
            else wide
        )
        return {}, replace(upload, update={**upload.update, self.part: now})


SPOILT = [
    Spoilt("items", torch.nan),
    Spoilt("w0", torch.nan),
    Spoilt("items", 3e38),
    Spoilt("w0", -torch.inf),
]


@pytest.mark.parametrize("wire", [False, True])
@pytest.mark.parametrize("attack", SPOILT, ids=repr)
@pytest.mark.parametrize("rule", [Median(), HiCS(), ItemMean()], ids=repr)
def test_nan_uploads_are_dropped_before_any_defence(
    rule: Combine, attack: Spoilt, wire: bool
) -> None:
    world = World.of(12, 40, attackers=3)
    method = Method(
        NCF(4, (4, 3)),
        Bce(),
        world.catalogue,
        Local("sgd", 0.1),
        (Union(items=40), ClipRows(1.0)),
        combine=rule,
    )
    play = Play(method, world, Setting(cohort=15, wire=wire), attack).begin().go(1)
    assert play.fleet.meter.dropped == {"not finite": 3}
    assert all(bool(v.isfinite().all()) for v in play.server.public.values())
    assert not len(play.server.state["filter"]["left out"])
