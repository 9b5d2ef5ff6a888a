"""Clients that live together: addressed by their ids, added and removed."""

import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.contract.views import TrainingData
from covey.core.messages import Catalogue, Download, Sent
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.engine.client.program import LocalData, Program
from covey.engine.fleet.hosted import Hosted
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.solvers import Local
from covey.testing.compare import expect_same

LISTS = Ragged.of([[0, 1, 2], [3, 4], [5], [1, 8], [2, 9, 7, 4], [6, 0]])
EVERYBODY = LocalData(TrainingData(LISTS, LISTS))
PROGRAM = Program(MF(dim=4), Bce(), Catalogue(12), Local("sgd", lr=0.5, epochs=2))
TABLE = Rng.server(0, 0, "table").normal(12, 4)[0]


def hosted(ids: list[int]) -> Hosted:
    ids_N = torch.tensor(ids)
    return Hosted(PROGRAM, ids_N, EVERYBODY.take(ids_N), 3, len(LISTS))


def trained(host: Hosted, ids: list[int], number: int = 1) -> dict[int, Tensor]:
    """Trains clients; returns the update of the item table that each of them sends."""
    sent = Download(Sent({"items": TABLE}))
    answer = host.ask(Request("train", number, torch.tensor(ids), sent))
    return {
        int(client): upload.take(torch.tensor([row])).update["items"].dense()[0]
        for upload in answer.uploads
        for row, client in enumerate(upload.ids_C)
    }


def kept(host: Hosted, ids: list[int]) -> Tensor:
    ((pick, state),) = host.private(torch.tensor(ids))
    assert pick.tolist() == list(range(len(ids)))
    return state["user"]


def test_who_else_lives_here_makes_no_difference() -> None:
    whole, some = hosted([0, 1, 2, 3, 4, 5]), hosted([1, 4, 5])
    together, apart = trained(whole, [5, 1, 4]), trained(some, [5, 1, 4])
    expect_same({str(k): v for k, v in together.items()}, {str(k): v for k, v in apart.items()})
    expect_same(kept(whole, [4, 1]), kept(some, [4, 1]))


def test_clients_are_added_and_removed() -> None:
    whole, host = hosted([0, 1, 2, 3, 4, 5]), hosted([1, 4])
    for each in (whole, host):
        trained(each, [1, 4])
    new = torch.tensor([0, 5])
    host.add(new, EVERYBODY.take(new))
    assert host.ids_N.tolist() == [0, 1, 4, 5]
    trained(whole, [0, 4], 2), trained(host, [0, 4], 2)
    expect_same(kept(whole, [0, 1, 4, 5]), kept(host, [0, 1, 4, 5]))
    host.remove(torch.tensor([1, 5]))
    assert host.ids_N.tolist() == [0, 4] and len(host.data.training.items) == 2
    trained(whole, [4], 3), trained(host, [4], 3)
    expect_same(kept(whole, [0, 4]), kept(host, [0, 4]))


def test_a_state_is_that_of_the_clients_named() -> None:
    one, two = hosted([0, 1, 2, 3]), hosted([0, 1, 2, 3])
    trained(one, [0, 1, 2, 3])
    ids = torch.tensor([1, 3])
    two.load(ids, one.state(ids))
    expect_same(kept(one, [1, 3]), kept(two, [1, 3]))
    assert not torch.equal(kept(one, [0]), kept(two, [0]))
