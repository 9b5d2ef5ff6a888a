"""FedCL's options: how often a client reports, what that costs, and what is retrieved by whom."""

import logging
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Sum
from covey.aggregate.step import Adam
from covey.contract.fleet import Request
from covey.contract.ledger import Ledger
from covey.contract.views import ServerView, TrainingData
from covey.core.errors import CoveyError
from covey.core.messages import Catalogue, Round, Total, Upload
from covey.core.ragged import Ragged
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import Server, enrol, run_round, start
from covey.methods.fedcl import HardNegatives, clipped
from covey.models.gru import GRU
from covey.models.mf import MF
from covey.models.ncf import NCF
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing import Conformance

ITEMS, USERS = 40, 6
LISTS = Ragged.of(
    [[3, 1, 4], [1, 5, 9, 2, 6], [2], [7], [5, 3, 8], [0, 2, 4, 6, 8, 10, 12, 14, 16]]
)
HARD = HardNegatives(clusters=3, difficulty=0.25, count=4)
SOFTMAX = NextItemSoftmax(stored=12, local=3)


def sgd(user: float = 0.1) -> Local:
    return Local("sgd", lr=1.0, epochs=1, rates={"user": user})


class TestEveryRound(Conformance):
    """The cohort reports, and some of it vanishes before the training."""

    def method(self, catalogue: Catalogue) -> Method:
        hard = replace(HARD, repeat="round", every=2)
        solver = Local("sgd", lr=1.0, epochs=1)
        return Method(
            GRU(6), SOFTMAX, catalogue, solver, (hard,), combine=Sum(), server_step=Adam(0.01)
        )


class TestBudgetOnAnMlp(Conformance):
    """The paper's NCF with an MLP: inner products retrieve, the MLP scores.

    A softmax does not depend on the last bias, whose gradient is only rounding; `eps` keeps Adam
    from amplifying it.
    """

    def method(self, catalogue: Catalogue) -> Method:
        hard, step = (
            replace(HARD, repeat="budget", reports=2, cluster="kmeans"),
            Adam(0.01, eps=1e-4),
        )
        return Method(
            NCF(4, (4, 3)), SOFTMAX, catalogue, sgd(), (hard,), combine=Sum(), server_step=step
        )


class TestControl(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        hard = replace(HARD, pool="random")
        return Method(
            MF(4), SOFTMAX, catalogue, sgd(), (hard,), combine=Sum(), server_step=Adam(0.01)
        )


def run(hard: HardNegatives, passes: int, lost: int = -1) -> tuple[SimulatedFleet, Server, Method]:
    """Passes of two rounds; client `lost` answers no report in the first."""
    catalogue = Catalogue(ITEMS, (), torch.arange(ITEMS).float())
    method = Method(MF(6), Bce(), catalogue, Local("sgd", 0.1, epochs=1), (hard,), combine=Sum())
    fleet = SimulatedFleet(
        Program(method.model, method.objective, catalogue, method.solver, method.mechanisms),
        LocalData(TrainingData(LISTS, Ragged.of([sorted(set(x)) for x in rows_of(LISTS)]))),
    )
    ask = fleet.ask

    def lossy(request: Request) -> Upload | Total:
        away_C = (request.ids_C == lost) & (request.step == "report") & (request.round == 1)
        return ask(replace(request, ids_C=request.ids_C[~away_C]))

    fleet.ask = lossy  # type: ignore[method-assign]
    server = enrol(start(method), fleet, method)
    for number in range(1, 2 * passes + 1):
        ids_C = fleet.ids_N[(number - 1) % 2 :: 2]
        server, _ = run_round(
            server, fleet, method, Round(number, ids_C, number % 2 == 1, number % 2 == 0)
        )
    return fleet, server, method


def rows_of(lists: Ragged) -> list[list[int]]:
    return [lists.take(torch.tensor([c])).values.tolist() for c in range(len(lists))]


def total(fleet: SimulatedFleet) -> float:
    """What the worst user has spent."""
    ledger = Ledger.of(fleet.program.disclosures())
    ledger.sends = fleet.meter.most_sends()
    return ledger.spent(("report", "fedcl/user"))


@pytest.mark.parametrize(
    ("options", "passes", "spent"),
    [
        ({"repeat": "pass"}, 5, 20.0),
        ({"repeat": "pass", "every": 2}, 5, 12.0),
        ({"repeat": "pass", "first": 3}, 5, 12.0),
        ({"repeat": "round"}, 5, 20.0),
        ({"repeat": "once"}, 5, 4.0),
        ({"repeat": "budget", "reports": 2}, 5, 4.0),
        ({"repeat": "budget", "reports": 8}, 5, 2.5),
        ({"repeat": "pass", "epsilon": math.inf}, 2, math.inf),
        ({"pool": "random"}, 3, 0.0),
        ({"pool": "uniform"}, 3, 0.0),
        ({"pool": "popular"}, 3, 0.0),
        ({"count": 0}, 3, 0.0),
    ],
)
def test_the_ledger_has_the_users_total(
    options: dict[str, object], passes: int, spent: float
) -> None:
    assert total(run(replace(HARD, **options), passes)[0]) == pytest.approx(spent)  # type: ignore[arg-type]


def test_who_missed_the_only_report_makes_it_later() -> None:
    fleet, server, _ = run(replace(HARD, repeat="once"), 3, lost=4)
    assert fleet.meter.sends_N["report", "fedcl/user"].tolist() == [1] * USERS
    assert server.state["fedcl"]["heard"].tolist() == [1] * USERS
    assert total(fleet) == 4.0


def test_a_device_repeats_its_only_release_whoever_asks() -> None:
    fleet, server, method = run(replace(HARD, repeat="once"), 2)
    first = server.state["fedcl"]["report"]
    assert torch.equal(fleet.store.dense["said/fedcl/user"], first)
    for number in (50, 51):  # a server that forgot
        forgot = replace(server, state={**server.state, "fedcl": {}})
        again, _ = run_round(forgot, fleet, method, Round(number, fleet.ids_N))
        assert torch.equal(again.state["fedcl"]["report"], first)
    assert total(fleet) == 4.0  # three messages, one release
    assert fleet.meter.most_sends()["report", "fedcl/user"] == 3


def test_a_shared_budget_means_more_noise_in_each_report() -> None:
    each = {k: replace(HARD, repeat="budget", reports=k).epsilon_each for k in (1, 4)}
    assert each == {1: 4.0, 4: 1.0}
    _, one, _ = run(replace(HARD, repeat="budget", reports=1), 1)
    _, four, _ = run(replace(HARD, repeat="budget", reports=4), 1)
    _, none, _ = run(replace(HARD, epsilon=math.inf), 1)
    noise = [(s.state["fedcl"]["report"] - none.state["fedcl"]["report"]) for s in (one, four)]
    torch.testing.assert_close(noise[1], 4 * noise[0], rtol=1e-4, atol=1e-5)


def test_without_noise_reports_are_clipped_vectors() -> None:
    fleet, server, _ = run(replace(HARD, epsilon=math.inf, clip=0.2, first=2), 2)
    said_ND = server.state["fedcl"]["report"]
    assert float(said_ND.abs().sum(1).max()) <= 0.2 + 1e-6
    assert (
        float(torch.cosine_similarity(said_ND, fleet.store.dense["user"]).min()) > 0.9
    )  # they moved on a little


def test_noise_of_the_device_is_not_of_the_seed_and_both_are_named() -> None:
    device = replace(HARD, noise="device")
    one, two = (run(device, 1)[1].state["fedcl"]["report"] for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.equal(*(run(HARD, 1)[1].state["fedcl"]["report"] for _ in range(2)))
    assert "entropy" in device.disclosures()[0].what and "simulated" in HARD.disclosures()[0].what
    assert "no noise" in replace(HARD, epsilon=math.inf).disclosures()[0].what


def look(
    memory: dict[str, Tensor], ids_C: Tensor, number: int = 1, items_ID: Tensor | None = None
) -> ServerView:
    items_ID = (
        torch.randn(ITEMS, 6, generator=torch.Generator().manual_seed(2))
        if items_ID is None
        else items_ID
    )
    catalogue = Catalogue(ITEMS, (), torch.arange(ITEMS).float())
    return ServerView(
        {"items": items_ID}, memory, Round(number, ids_C), 0, "fedcl", GRU(6), SOFTMAX, catalogue
    )


def hear(
    hard: HardNegatives, ids: list[int], seed: int, memory: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    ids_C = torch.tensor(ids)
    said_CD = torch.randn(len(ids), 6, generator=torch.Generator().manual_seed(seed))
    view = look(memory or {}, ids_C)
    upload = Upload(ids_C, torch.ones(len(ids)), extra={"fedcl": {"user": said_CD}})
    return hard.receive_reports(replace(view, state=hard.begin_round(view)), upload)[0]


def drawn(hard: HardNegatives, memory: dict[str, Tensor], client: int) -> set[int]:
    ids_C = torch.tensor([client])
    return {
        i
        for n in range(150)
        for i in hard.send(look(memory, ids_C, n)).each["items"].flatten().tolist()
    }


def best(query_D: Tensor, many: int) -> set[int]:
    return set((look({}, torch.tensor([0])).public["items"] @ query_D).topk(many).indices.tolist())


def test_whose_vector_retrieves() -> None:
    for cluster in ("ward", "kmeans", "mean", "none"):
        hard = replace(HARD, cluster=cluster)  # type: ignore[arg-type]
        memory = hear(hard, list(range(20)), 0)
        query = {"mean": memory["report"].mean(0), "none": memory["report"][7]}.get(cluster)
        query = memory["centre"][memory["member"][7]] if query is None else query
        assert drawn(hard, memory, 7) == best(query, 10), cluster
        assert drawn(hard, memory, 33) == best(memory["report"].mean(0), 10)  # it never reported


def test_one_mean_is_one_cluster() -> None:
    mean, one = (replace(HARD, **o) for o in ({"cluster": "mean"}, {"clusters": 1}))  # type: ignore[arg-type]
    a, b = hear(mean, list(range(20)), 0), hear(one, list(range(20)), 0)
    torch.testing.assert_close(a["centre"], b["centre"])
    assert torch.equal(a["member"], b["member"])


def test_the_pools() -> None:
    memory = hear(HARD, list(range(20)), 0)
    centre_D = memory["centre"][memory["member"][7]]
    assert drawn(replace(HARD, pool="hardest"), memory, 7) == best(centre_D, 4)
    assert drawn(replace(HARD, pool="uniform"), {}, 7) == set(range(ITEMS))
    assert drawn(replace(HARD, pool="popular"), {}, 7) == set(range(30, 40))
    one, two = (drawn(replace(HARD, pool="random"), {}, c) for c in (7, 8))
    assert len(one) == len(two) == 10 and one != two


def test_between_clusterings_a_report_joins_the_centre_next_to_it() -> None:
    hard = replace(HARD, repeat="round", every=3)
    memory = hear(hard, list(range(12)), 0)
    after = hear(hard, [3, 15], 1, memory)
    assert torch.equal(after["centre"], memory["centre"])
    distance = torch.cdist(after["report"][[3, 15]], memory["centre"][1:])
    assert torch.equal(after["member"][[3, 15]], 1 + distance.argmin(1))
    others = [c for c in range(12) if c != 3]
    assert torch.equal(after["member"][others], memory["member"][others])
    anew = hear(replace(hard, every=0), [3, 15], 1, memory)
    assert not torch.equal(anew["centre"], memory["centre"])


def test_by_the_letter_only_this_rounds_reports_are_clustered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    letter = replace(HARD, repeat="round", latest=False, clusters=5)
    memory = hear(letter, list(range(12)), 0)
    with caplog.at_level(logging.WARNING):
        memory = hear(letter, [3, 15], 1, memory)
    assert "2 reports make fewer than 5 clusters" in caplog.text
    assert memory["known"].nonzero()[:, 0].tolist() == [3, 15] and len(memory["centre"]) == 3
    assert int(memory["heard"][3]) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"clip": 0.0},
        {"clip": -2.0},
        {"clip": math.inf},
        {"clusters": 0},
        {"reports": 0},
        {"first": 0},
        {"every": 0},
        {"count": -1},
        {"difficulty": 1.5},
        {"noise": "devise"},
        {"repeat": "weekly"},
    ],
    ids=str,
)
def test_impossible_options_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(CoveyError, match="fedcl"):
        HardNegatives(**options)  # type: ignore[arg-type]


def test_a_popular_pool_needs_counts() -> None:
    view = replace(look({}, torch.tensor([0])), catalogue=Catalogue(ITEMS))
    with pytest.raises(CoveyError, match="counts"):
        replace(HARD, pool="popular").send(view)


def test_clipping_a_zero_vector_is_harmless() -> None:
    assert torch.equal(clipped(torch.zeros(2, 4), 1.0), torch.zeros(2, 4))
