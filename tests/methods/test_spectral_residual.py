"""A correction of the spectral score: without training, without own items, and its unit."""

from dataclasses import replace

import pytest
import torch

import covey
from covey.aggregate.combine import Mean
from covey.contract.examples import Batch
from covey.contract.mechanism import Mechanism
from covey.contract.model import History
from covey.contract.views import ClientView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Sent
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, start
from covey.inference.scorers import private_part
from covey.methods.cl4fedrec import Contrast
from covey.methods.spectral import SubspaceIteration
from covey.methods.spectral_residual import PUBLIC, SpectralResidual, left_out, log_odds, moments
from covey.methods.views import RowPack, packed_view
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.models.pfedrec import LinearScore
from covey.models.spectral import Spectral
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.pairs import Bce, NoObjective
from covey.solvers import Local
from covey.testing import Conformance
from covey.testing.world import Play, Setting, World

LISTS = Ragged.of([[0, 3, 3], [1, 2, 4], [], [5]])
N = 6
SMALL = SpectralResidual(rank=4, sums=2, choose=(0.5, 2.0))  # 4 exchanges, then a round that trains


def tables(dtype: torch.dtype = torch.float64) -> Fields:
    rng = Rng.server(3, 0, "tables")
    made = {"items": rng.fold("i").normal(N, 3)[0], "weight": rng.fold("w").uniform(N)[0] + 0.5}
    return {
        k: v[None].to(dtype) for k, v in {**made, "filter": torch.tensor([1.0, 0.6, 0.2])}.items()
    }


class TestOnMF(Conformance):
    rounds: int = 6
    users: int = (
        60  # items of the very same users tie, and rounding would break the tie: few are alike here
    )
    cohort: int = 24

    def method(self, catalogue: Catalogue) -> Method:
        return Method(MF(4), Bce(), catalogue, Local("sgd", 0.1), (SMALL,))

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        """No weight, no sums, no offset: the method itself."""
        base = replace(self.method(catalogue), mechanisms=())
        return replace(base, mechanisms=(replace(SMALL, weight=0.0),)), base


class TestOnPFedRec(Conformance):
    rounds: int = 6

    def method(self, catalogue: Catalogue) -> Method:
        solver = Local(
            "sgd",
            0.1,
            epochs=1,
            batch=8,
            phases=(("score", "bias"), ("items",)),
            rates={"items": 0.5},
        )
        part = replace(SMALL, choose=())
        return Method(
            LinearScore(4), Bce(saturating=True), catalogue, solver, (part,), combine=Mean()
        )


class TestOnCL4FedRec(Conformance):
    rounds: int = 6

    def method(self, catalogue: Catalogue) -> Method:
        parts = (Contrast(users=3, history=5), replace(SMALL, choose=()))
        return Method(NCF(4, (4, 2)), Bce(), catalogue, Local("adam", 0.01, epochs=1), parts)


def played(
    model: MF, objective: Bce | NoObjective, lr: float, parts: tuple[Mechanism, ...], rounds: int
) -> Play:
    world = World.of(25, 40)
    solver = Local("sgd", lr) if isinstance(objective, Bce) else None
    method = Method(model, objective, world.catalogue, solver, parts)
    return Play(method, world, Setting(rounds=rounds, cohort=25)).begin().go()


def test_without_learning_it_ranks_as_spectral_does() -> None:
    world, sums = World.of(25, 40), SubspaceIteration(sums=2, choose=(0.5, 2.0))
    plain = Method(Spectral(4), NoObjective(), world.catalogue, None, (sums,))
    alone = Play(plain, world, Setting(rounds=3, cohort=25)).begin().go()
    ours = played(MF(4, scale=0.0), Bce(), 0.0, (SMALL,), 5)
    unit = ours.server.state["spectral residual"]["tell/unit"]
    assert float(unit) > 0
    for name in ("items", "weight", "filter"):
        wanted = alone.server.public[name] * (unit if name == "filter" else 1)
        torch.testing.assert_close(ours.server.public[PUBLIC + name], wanted.float())
    figures, others = ours.evaluate(), alone.evaluate()
    for name, value in others.items():
        assert torch.equal(figures[name].nan_to_num(-1), value.nan_to_num(-1))


def test_nothing_moves_before_there_is_something_to_correct() -> None:
    first = played(MF(4), Bce(), 0.5, (SMALL,), 3)
    fresh = first.method.model.public(40, Rng.server(first.setting.seed, 0, "public"))
    assert torch.equal(first.server.public["items"], fresh["items"])
    assert not [k for k in first.server.public if k.startswith(PUBLIC)]
    assert not torch.equal(first.go(1).server.public["items"], fresh["items"])
    reports = first.fleet.meter.most_sends()
    assert reports["report", "spectral residual/rows"] == 2
    first.go(3)
    assert first.fleet.meter.most_sends()["report", "spectral residual/moments"] == 1


def test_an_own_item_is_left_out_of_its_own_score() -> None:
    """As from the list without all copies of the item; other items are scored by the whole list."""
    given, model = tables(), Spectral(3)
    wanted = Ragged.of([[3, 0, 5], [4, 0], [1], [5, 2]])
    found = left_out(given, LISTS, wanted, N)
    at = 0
    for client, items in enumerate([[3, 0, 5], [4, 0], [1], [5, 2]]):
        own = LISTS.take(torch.tensor([client])).values.tolist()
        for item in items:
            rest = Ragged.of([[i for i in own if i != item]])
            u_CD = model.listed(given, History.of(rest)) * given["filter"]
            assert float(found[at]) == pytest.approx(
                float(u_CD[0] @ given["items"][0, item]), abs=1e-12
            )
            at += 1


def test_moments_are_those_of_all_scores() -> None:
    given = tables()
    found = moments(given, LISTS, N)
    every = Ragged.of([list(range(N))] * len(LISTS))
    score_CI = left_out(given, LISTS, every, N).view(-1, N)
    for client in range(len(LISTS)):
        own = sorted(set(LISTS.take(torch.tensor([client])).values.tolist()))
        if not own:
            assert found[client].tolist() == [0] * 5
            continue
        rest = [i for i in range(N) if i not in own]
        mine, other = score_CI[client, own], score_CI[client, rest]
        wanted = torch.stack([mine.mean(), (mine**2).mean(), other.mean(), (other**2).mean()])
        assert found[client].tolist() == pytest.approx([1, *wanted.tolist()])


def test_the_unit_is_the_slope_of_the_log_odds() -> None:
    """Of normal distributions around 3 and 1 with variance 4: (3 - 1) / 4 from the middle on."""
    slope, shift = log_odds(2 * torch.tensor([1.0, 3.0, 9 + 4, 1.0, 1 + 4]))
    assert (float(slope), float(shift)) == (0.5, -1.0)
    slope, _ = log_odds(
        torch.tensor([1.0, 1.0, 5.0, 3.0, 13.0])
    )  # a score that is worse than none is not turned round
    assert float(slope) == 0
    assert all(bool(x.isfinite()) for x in log_odds(torch.zeros(5)))


def test_somebody_new_is_served_on_top_of_the_same_base() -> None:
    """By the API: a new user's list is scored, and the private part learns the correction."""
    part = 'mechanism=[{use="covey.methods.spectral_residual:SpectralResidual",rank=4,sums=2}]'
    data = {"users": 60, "items": 30, "mean_items": 6}
    still = ["solver.lr=0.0", "model.scale=0.0"]  # the base alone
    fitted = covey.fit("fedmf", rounds=5, data=data, set=[part, *still])
    params = {k: v[None] for k, v in fitted.scorer.server.public.items()}
    model, given = SpectralResidual(rank=4).base_model(params)  # type: ignore[misc]
    u_CD = model.user(given, History.of(Ragged.of([[3, 7]])), Rng.server(0, 0, ""), False)
    found = fitted.ranked_new([fitted.items[3], fitted.items[7]], k=30, filter_seen=False)
    best = model.score(given, u_CD, given["items"])[0].sort(descending=True)
    assert [fitted.items.index(x.item) for x in found] == best.indices.tolist()
    private = private_part(fitted.scorer.clients.program)
    assert private is not None and [m.name for m in private.mechanisms] == ["spectral residual"]
    learned = covey.fit("fedmf", rounds=9, data=data, set=[part]).ranked_new(
        [fitted.items[3]], k=30
    )
    assert len(learned) == 29


def test_contrast_sees_the_offsets_of_the_rows_that_take_part() -> None:
    """Two examples of row 1; row 0 does not take part; one more row is for all others."""
    index, ones = torch.tensor([[0, 1, 1, 2]] * 2), torch.ones(2, 4)
    offset = torch.tensor([[5.0, 2.0, 2.0, 3.0], [6.0, -2.0, -2.0, -3.0]])
    batch = Batch(
        torch.tensor([[7, 8, 9]] * 2), torch.ones(2, 3).bool(), index, ones, ones, None, offset
    )
    pack = RowPack(
        "",
        torch.arange(2),
        torch.tensor([[1, 2, 0], [4, 5, 0]]),
        torch.tensor([[True, True, False]] * 2),
    )
    params = {"items": torch.zeros(2, 3, 4), "user": torch.zeros(2, 4)}
    data, rng = TrainingData(LISTS, LISTS), Rng.of(0, 1, torch.arange(2))
    view = ClientView(params, data, Sent(), rng, MF(4), Bce(), Catalogue(N), batch)
    some = packed_view(view, pack).batch
    assert some is not None and some.offset_CL is not None
    assert some.offset_CL.tolist() == [[2, 3, 0, 0], [-2, -3, 0, 0]]


def test_what_cannot_be_is_refused() -> None:
    def joined(method: Method) -> None:
        data = LocalData(TrainingData(LISTS, LISTS))
        enrol(
            start(method),
            SimulatedFleet(Program(method.model, method.objective, method.catalogue), data),
            method,
        )

    with pytest.raises(CoveyError, match="Bce or Bpr"):
        joined(Method(MF(2), NextItemSoftmax(), Catalogue(N), Local("sgd", 0.1), (SMALL,)))
    with pytest.raises(CoveyError, match="there are 6 items"):
        joined(Method(MF(2), Bce(), Catalogue(N), Local("sgd", 0.1), (replace(SMALL, rank=7),)))
    with pytest.raises(
        CoveyError, match="a model has at most one base, here are spectral residual, other"
    ):
        Program(
            MF(2), Bce(), Catalogue(N), Local("sgd", 0.1), (SMALL, replace(SMALL, name="other"))
        )
    with pytest.raises(CoveyError, match="weight = -1"):
        SpectralResidual(weight=-1.0)
    with pytest.raises(CoveyError, match="choose = 0"):
        SpectralResidual(choose=(0.0,))
