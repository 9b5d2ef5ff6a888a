"""FedCL: the report's privacy, the draw of hard negatives, and Eq. 1 against a naive client."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from covey.aggregate.combine import Sum
from covey.aggregate.fold import total_of
from covey.aggregate.step import Adam
from covey.contract.examples import Examples
from covey.contract.fleet import Request
from covey.contract.ledger import Ledger
from covey.contract.mechanism import no_clients
from covey.contract.views import ClientView, ServerView, TrainingData
from covey.core.messages import Catalogue, Download, Round, Sent, Total, Upload
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.simulated import SimulatedFleet
from covey.engine.method import Method
from covey.engine.rounds import enrol, run_round, start, view
from covey.methods.fedcl import HardNegatives, clipped
from covey.models.gru import GRU
from covey.models.mf import MF
from covey.objectives.next_item import NextItemSoftmax
from covey.run.config.schema import Config
from covey.run.config.shipped import read, shipped
from covey.solvers import Local
from covey.testing import Conformance

ITEMS = 40
LISTS = Ragged.of(
    [[3, 1, 4], [1, 5, 9, 2, 6], [], [7], [5, 3, 5, 8], [0, 2, 4, 6, 8, 10, 12, 14, 16]]
)
AVOID = Ragged.of(
    [sorted(set(LISTS.take(torch.tensor([c])).values.tolist())) for c in range(len(LISTS))]
)
HARD = HardNegatives(clusters=3, difficulty=0.25, count=4)
OBJECTIVE = NextItemSoftmax(stored=12, local=3, in_batch=True)


def method(*mechanisms: HardNegatives, seed: int = 0) -> Method:
    solver, catalogue = Local("sgd", lr=1.0, epochs=1), Catalogue(ITEMS)
    return Method(
        GRU(6),
        OBJECTIVE,
        catalogue,
        solver,
        mechanisms,
        combine=Sum(),
        server_step=Adam(0.01),
        seed=seed,
    )


def fleet_of(method: Method) -> SimulatedFleet:
    program = Program(
        method.model, method.objective, method.catalogue, method.solver, method.mechanisms
    )
    return SimulatedFleet(program, LocalData(TrainingData(LISTS, AVOID)))


def public(method: Method) -> Fields:
    return {k: v.double() for k, v in start(method).public.items()}


class TestFedCL(Conformance):
    def method(self, catalogue: Catalogue) -> Method:
        return replace(method(HARD), catalogue=catalogue)

    def neutral(self, catalogue: Catalogue) -> tuple[Method, Method]:
        off = method(replace(HARD, count=0))
        return replace(off, catalogue=catalogue), replace(off, catalogue=catalogue, mechanisms=())


class TestFedCLWithUserVectors(Conformance):
    """The paper's ID model: private vectors, no in-batch negatives, several local steps."""

    def method(self, catalogue: Catalogue) -> Method:
        objective = NextItemSoftmax(stored=12, local=3)
        return Method(
            MF(6), objective, catalogue, Local("sgd", 0.1, epochs=2), (HARD,), combine=Sum()
        )


@pytest.mark.parametrize("name", shipped("methods"))
def test_in_batch_negatives_are_for_sequences(name: str) -> None:
    """With a private user vector all positions have the same one, against the other positions."""
    config = Config.of(read("methods", name) | {"method": name})
    if getattr(config.part("objective"), "in_batch", False):
        assert getattr(config.part("model"), "sequential", False)


def client_view(u_CD: Tensor, round: int = 1) -> ClientView:
    ids_C = torch.arange(len(u_CD))
    lists = Ragged(torch.zeros(0, dtype=torch.long), torch.zeros(len(u_CD) + 1, dtype=torch.long))
    params = {"user": u_CD, "items": torch.zeros(1, ITEMS, u_CD.shape[1])}
    rng = Rng.of(0, round, ids_C).fold("fedcl")
    return ClientView(
        params, TrainingData(lists, lists), Sent(), rng, MF(), OBJECTIVE, Catalogue(ITEMS)
    )


def test_clipping_bounds_the_l1_norm_and_keeps_the_direction() -> None:
    torch.manual_seed(0)
    u_CD = (
        torch.randn(200, 64, dtype=torch.float64)
        * torch.logspace(-4, 2, 200, dtype=torch.float64)[:, None]
    )
    short_CD = clipped(u_CD, 1.0)
    assert bool((short_CD.abs().sum(1) <= 1 + 1e-12).all())
    small_C = u_CD.abs().sum(1) <= 1
    assert bool(small_C.any()) and torch.equal(short_CD[small_C], u_CD[small_C])
    torch.testing.assert_close(
        torch.cosine_similarity(u_CD, short_CD), torch.ones(200, dtype=torch.float64)
    )


def test_the_noise_has_scale_two_delta_over_epsilon() -> None:
    torch.manual_seed(0)
    u_CD = torch.randn(4000, 64, dtype=torch.float64)
    for clip, epsilon in ((1.0, 4.0), (0.5, 8.0)):
        said_CD = HardNegatives(clip=clip, epsilon=epsilon).report(client_view(u_CD))["user"]
        noise_CD = said_CD - clipped(u_CD, clip)
        scale = 2 * clip / epsilon
        assert float(noise_CD.abs().mean()) == pytest.approx(scale, rel=0.01)
        assert float(noise_CD.square().mean()) == pytest.approx(
            2 * scale**2, rel=0.03
        )  # Laplace, not another law
        assert abs(float(noise_CD.mean())) < 0.01 * scale


def test_noise_is_fresh_in_every_round_and_for_every_client() -> None:
    said_RCD = torch.stack(
        [HARD.report(client_view(torch.zeros(9, 4), round))["user"] for round in (1, 2, 3)]
    )
    assert len(said_RCD.flatten().unique()) == said_RCD.numel()


def server_view(
    memory: dict[str, Tensor], round: Round, items_ID: Tensor, step: str = "train"
) -> ServerView:
    return ServerView(
        {"items": items_ID}, memory, round, 0, "fedcl", GRU(6), OBJECTIVE, Catalogue(ITEMS), step
    )


def reports(ids: list[int], seed: int) -> Upload:
    torch.manual_seed(seed)
    ids_C = torch.tensor(ids)
    return Upload(ids_C, torch.ones(len(ids)), extra={"fedcl": {"user": torch.randn(len(ids), 6)}})


def heard(*all_reports: Upload, hard: HardNegatives = HARD) -> dict[str, Tensor]:
    """Each in a pass of its own."""
    memory: dict[str, Tensor] = {}
    for number, upload in enumerate(all_reports, 1):
        look = server_view(memory, Round(number, upload.ids_C), torch.zeros(ITEMS, 6), "report")
        memory, _ = hard.receive_reports(replace(look, state=hard.begin_round(look)), upload)
    return memory


def test_the_server_keeps_the_latest_report_of_everybody() -> None:
    first, second = reports([0, 1, 2, 4], 0), reports([1, 7], 1)  # 3 never answered, 7 joined late
    memory = heard(first, second)
    assert memory["known"].tolist() == [True, True, True, False, True, False, False, True]
    assert torch.equal(memory["report"][[0, 2, 4]], first.extra["fedcl"]["user"][[0, 2, 3]])
    assert torch.equal(memory["report"][[1, 7]], second.extra["fedcl"]["user"])
    known = memory["known"].nonzero()[:, 0]
    for k in range(1, 4):
        mine = known[memory["member"][known] == k]
        torch.testing.assert_close(memory["centre"][k], memory["report"][mine].mean(0))
    torch.testing.assert_close(memory["centre"][0], memory["report"][known].mean(0))


def test_hard_negatives_come_from_the_pool_without_replacement() -> None:
    memory = heard(reports(list(range(30)), 0))
    torch.manual_seed(2)
    items_ID = torch.randn(ITEMS, 6)
    ids_C = torch.tensor([5, 29, 0, 77])  # 77 never reported: everybody's mean serves it
    for number in range(1, 40):
        sent_CT = HARD.send(server_view(memory, Round(number, ids_C), items_ID)).each["items"]
        assert sent_CT.shape == (4, HARD.count)
        for row, client in zip(sent_CT.tolist(), ids_C.tolist(), strict=True):
            centre_D = memory["centre"][int(memory["member"][client]) if client < 30 else 0]
            pool = (items_ID @ centre_D).argsort(descending=True)[: ITEMS // 4].tolist()
            assert len(set(row)) == HARD.count and set(row) <= set(pool)


def test_draws_depend_on_seed_round_and_client_alone() -> None:
    memory, items_ID = heard(reports(list(range(30)), 0)), torch.randn(ITEMS, 6)
    memory["member"] = torch.ones(30, dtype=torch.long)  # all in one cluster

    def draw(number: int, ids: list[int]) -> Tensor:
        view = server_view(memory, Round(number, torch.tensor(ids)), items_ID)
        items_CT = HARD.send(view).each["items"]
        assert isinstance(items_CT, Tensor)
        return items_CT

    together = draw(1, list(range(30)))
    assert torch.equal(draw(1, [12, 3]), together[[12, 3]])
    assert (
        len({tuple(sorted(row)) for row in together.tolist()}) > 15
    )  # they differ within a cluster
    assert not torch.equal(draw(2, list(range(30))), together)
    everyone = torch.bincount(
        torch.cat([draw(n, list(range(30))) for n in range(200)]).flatten(), minlength=ITEMS
    )
    share = everyone[everyone > 0] / (200 * 30 * HARD.count)
    assert len(share) == ITEMS // 4 and float((share - 0.1).abs().max()) < 0.006


def test_everyone_reports_when_a_pass_opens_and_nobody_else() -> None:
    ours = method(HARD)
    fleet = fleet_of(ours)
    server = enrol(start(ours), fleet, ours)
    for number in range(1, 7):
        ids_C = fleet.ids_N[(number - 1) % 3 :: 3]
        server, after = run_round(
            server, fleet, ours, Round(number, ids_C, number % 3 == 1, number % 3 == 0)
        )
        assert torch.equal(after.ids_C.sort().values, ids_C)
    assert set(fleet.meter.sends_N["report", "fedcl/user"].tolist()) == {2}
    assert set(fleet.meter.sends_N["train", "update/items"].tolist()) == {2}


def test_a_round_before_any_report_has_no_hard_negatives() -> None:
    ours, ids_C = method(HARD), torch.tensor([0, 1])
    assert HARD.send(server_view({}, Round(1, ids_C), torch.zeros(ITEMS, 6))) == Sent()
    server = enrol(start(ours), fleet_of(ours), ours)
    run_round(server, fleet_of(ours), ours, Round(1, ids_C, opens_epoch=False))
    look = view(server, ours, "fedcl", Round(1, ids_C, False))
    nobody = HARD.select_reporters(replace(look, state=HARD.begin_round(look)), ids_C)
    assert nobody is not None and len(nobody) == len(no_clients())


def test_own_items_are_never_hard_negatives() -> None:
    sent_CT = torch.tensor([[3, 30, 1], [3, 30, 1], [3, 30, 1], [7, 7, 7], [8, 5, 3], [1, 3, 5]])
    base = OBJECTIVE.examples(LISTS, AVOID, ITEMS, Rng.of(0, 1, torch.arange(6)))
    look = replace(
        client_view(torch.zeros(6, 6)),
        data=TrainingData(LISTS, AVOID),
        received=Sent(each={"items": sent_CT}),
    )
    more = HARD.augment(look, base)
    added = [
        set(sent) - set(own) for sent, own in zip(sent_CT.tolist(), rows_of(LISTS), strict=True)
    ]
    for c, (before, after) in enumerate(zip(rows_of(base.items), rows_of(more.items), strict=True)):
        assert after[: len(before)] == before and set(after[len(before) :]) == added[c]
    fresh_T = more.items.place >= base.items.lengths[more.items.owner]
    assert more.slot is not None
    assert (
        set(more.slot[fresh_T].tolist()) == {-1}
        and not more.label[fresh_T].any()
        and more.weight[fresh_T].all()
    )


def rows_of(lists: Ragged) -> list[list[int]]:
    return [lists.take(torch.tensor([c])).values.tolist() for c in range(len(lists))]


def naive_update(shared: Fields, client: int, local: Examples, hard: list[int]) -> Fields:
    """One client by the letter of Eq. 1: a cell, a loop over positions, a loop over negatives."""
    params = {k: v.clone().requires_grad_() for k, v in shared.items()}
    cell = torch.nn.GRUCell(6, 6, dtype=torch.float64)
    weights = {"weight_ih": params["w_in"].mT, "weight_hh": params["w_state"].mT}
    weights |= {"bias_ih": params["b_in"], "bias_hh": params["b_state"]}
    own = rows_of(LISTS)[client]
    u_D, loss = torch.zeros(1, 6, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    mine = local.items.owner == client
    assert local.slot is not None
    for j, target in enumerate(own):
        stored = local.items.values[mine & (local.label == 0) & (local.slot == j)].tolist()
        batch = [item for k, item in enumerate(own) if k != j]
        negatives = [n for n in batch + stored + [h for h in hard if h not in own] if n != target]
        v = params["items"]
        positive = torch.exp(u_D[0] @ v[target])
        loss = loss - torch.log(
            positive / (positive + sum(torch.exp(u_D[0] @ v[n]) for n in negatives))
        )
        u_D = torch.func.functional_call(cell, weights, (v[target][None], u_D))
    if len(own) < 2:  # the state before the first item is zero, so it moves nothing
        return {k: torch.zeros_like(v) for k, v in shared.items()}
    grads = torch.autograd.grad(loss, list(params.values()))
    return {k: -g for k, g in zip(params, grads, strict=True)}


def answers(fold: bool) -> tuple[Upload | Total, Fields, Tensor]:
    ours, ids_C = method(HARD), torch.arange(len(LISTS))
    fleet, shared = fleet_of(ours), public(ours)
    hard_CT = Rng.of(3, 3, ids_C).permutation(ITEMS)[:, :6]
    download = Download(Sent(dict(shared)), {"fedcl": Sent(each={"items": hard_CT})})
    return fleet.ask(Request("train", 1, ids_C, download, fold)), shared, hard_CT


def test_uploads_are_the_gradients_of_eq_1() -> None:
    upload, shared, hard_CT = answers(fold=False)
    assert isinstance(upload, Upload)
    rng = Rng.of(0, 1, upload.ids_C).fold("examples")
    local = OBJECTIVE.examples(LISTS, AVOID, ITEMS, rng)
    for c in range(len(LISTS)):
        update = naive_update(shared, c, local, hard_CT[c].tolist())
        for name, naive in update.items():
            ours = upload.update[name].dense()[c] if name == "items" else upload.update[name][c]
            torch.testing.assert_close(ours, naive, rtol=0, atol=1e-12)
    assert float(upload.update["w_in"].abs().max()) > 1e-3


def test_the_shortcut_is_the_sum_of_single_uploads() -> None:
    upload, total = answers(fold=False)[0], answers(fold=True)[0]
    assert isinstance(total, Total)
    summed = total_of(upload)
    for name, value in summed.update.items():
        torch.testing.assert_close(total.update[name], value, rtol=0, atol=1e-10)
    torch.testing.assert_close(total.touched["items"], summed.touched["items"])
    assert float(total.weight) == float(summed.weight) == len(LISTS)


def test_the_ledger_adds_epsilon_up_over_reports() -> None:
    program = fleet_of(method(HARD)).program
    ledger = Ledger.of(program.disclosures())
    ledger.sends = {("report", "fedcl/user"): 5, ("train", "update/items"): 5}
    assert ledger.spent(("report", "fedcl/user")) == 20.0
    assert ledger.spent(("train", "update/items")) == float("inf")
