"""The GRU is torch's own recurrence, for shared and for personal weights, whatever the padding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.models import lists
from covey.models.gru import GRU
from covey.models.recurrence import recur

MODEL = GRU(dim=6, last=5)
ITEMS = 11
LISTS = [[3, 1, 4], [1, 5, 9, 2], [], [6]]
RNG = Rng.of(0, 1, torch.arange(len(LISTS)))


def params(clients: int = 1) -> Fields:
    """Weights of one model, or as many different ones."""
    models = [MODEL.public(ITEMS, Rng.server(seed, 0, "public")) for seed in range(clients)]
    return {k: torch.stack([m[k] for m in models]).double() for k in models[0]}


def history(lists: list[list[int]] = LISTS) -> History:
    return History.of(Ragged.of(lists))


def naive(one: Fields, items: list[int]) -> list[Tensor]:
    """States before the first item and after each, by torch's cell."""
    cell = torch.nn.GRUCell(6, 6, dtype=torch.float64)
    names = {"weight_ih": "w_in", "weight_hh": "w_state", "bias_ih": "b_in", "bias_hh": "b_state"}
    weights = {
        theirs: one[ours].mT if ours[0] == "w" else one[ours] for theirs, ours in names.items()
    }
    states = [torch.zeros(1, 6, dtype=torch.float64)]
    for item in items:
        states.append(
            torch.func.functional_call(cell, weights, (one["items"][item][None], states[-1]))
        )
    return [h[0] for h in states]


@pytest.mark.parametrize("clients", [1, len(LISTS)])
def test_states_are_those_of_torchs_cell(clients: int) -> None:
    stacked = params(clients)
    before_CPD = MODEL.user(stacked, history(), RNG, True)
    after_CD = MODEL.user(stacked, history(), RNG, False)
    for c, items in enumerate(LISTS):
        states = naive({k: v[c % clients] for k, v in stacked.items()}, items)
        torch.testing.assert_close(after_CD[c], states[-1], rtol=0, atol=1e-12)
        for p in range(len(items)):
            torch.testing.assert_close(before_CPD[c, p], states[p], rtol=0, atol=1e-12)


def test_both_ways_are_equal_with_their_gradients() -> None:
    shared = {k: v.requires_grad_() for k, v in params().items()}
    own = {
        k: v.detach().expand(len(LISTS), *v.shape[1:]).clone().requires_grad_()
        for k, v in shared.items()
    }
    torch.manual_seed(0)
    weigh_CPD = torch.randn(len(LISTS), 4, 6, dtype=torch.float64)
    one, many = (MODEL.user(p, history(), RNG, True) for p in (shared, own))
    torch.testing.assert_close(one, many, rtol=0, atol=1e-12)
    single = torch.autograd.grad((one * weigh_CPD).sum(), list(shared.values()))
    each = torch.autograd.grad((many * weigh_CPD).sum(), list(own.values()))
    for s, e in zip(single, each, strict=True):
        torch.testing.assert_close(s, e.sum(0, keepdim=True), rtol=0, atol=1e-12)


def test_later_items_and_padding_do_not_reach_a_state() -> None:
    stacked = params()
    states_CPD = MODEL.user(stacked, history([[3, 1, 4, 1]]), RNG, True)
    other_CPD = MODEL.user(stacked, history([[3, 1, 7, 2]]), RNG, True)
    assert torch.equal(states_CPD[:, :3], other_CPD[:, :3])
    assert not torch.equal(states_CPD[:, 3], other_CPD[:, 3])
    alone = MODEL.user(stacked, history([[3, 1, 4], [1]]), RNG, False)
    padded = MODEL.user(stacked, history([[3, 1, 4], [1, 5, 9, 2, 6]]), RNG, False)
    torch.testing.assert_close(alone[0], padded[0], rtol=0, atol=1e-12)


def test_only_the_newest_items_count() -> None:
    stacked = params()
    long, short = [8, 7, 3, 1, 4, 1, 5], [3, 1, 4, 1, 5]
    u_CD = MODEL.user(stacked, history([long, short, [2]]), RNG, False)
    torch.testing.assert_close(u_CD[0], u_CD[1], rtol=0, atol=1e-12)
    torch.testing.assert_close(
        u_CD[2], naive({k: v[0] for k, v in stacked.items()}, [2])[-1], rtol=0, atol=1e-12
    )


def test_without_items_the_state_is_zero() -> None:
    assert not MODEL.user(params(), history(), RNG, False)[2].any()


def test_nothing_is_private() -> None:
    assert MODEL.kept == () and MODEL.private(RNG, RNG) == {}
    assert set(MODEL.shared) == set(MODEL.public(ITEMS, Rng.server(0, 0, "public")))


@pytest.mark.parametrize("many", [1, 2, 3, 5, 9])
def test_the_same_bits_whoever_is_asked_beside(many: int) -> None:
    stacked = {k: v.float() for k, v in params().items()}
    lists = torch.randint(0, ITEMS, (40, 4), generator=torch.Generator().manual_seed(0)).tolist()
    together = MODEL.user(stacked, history(lists), RNG, False)
    assert torch.equal(MODEL.user(stacked, history(lists[:many]), RNG, False), together[:many])


def test_the_recurrence_is_torchs_with_its_gradients() -> None:
    torch.manual_seed(0)
    steps, clients, dim = 5, 8, 6
    cell = torch.nn.GRU(dim, dim, dtype=torch.float64)
    x = torch.randn(steps, clients, dim, dtype=torch.float64, requires_grad=True)
    weigh = torch.randn(steps, clients, dim, dtype=torch.float64)
    weights = [cell.weight_ih_l0, cell.bias_ih_l0, cell.weight_hh_l0, cell.bias_hh_l0]
    ours = recur(x @ weights[0].mT + weights[1], weights[2].mT, weights[3])
    theirs = cell(x)[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    slopes = [torch.autograd.grad((h * weigh).sum(), [x, *weights]) for h in (ours, theirs)]
    for mine, other in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_vectors_of_many_clients_are_those_of_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of all lengths, also empty and too long ones, at once, a few at a time, one by one."""
    model, rng = GRU(dim=8, last=20), Rng.server(0, 0, "test")
    weights = {k: v[None] for k, v in model.public(30, rng).items()}
    length_C = torch.arange(40)
    items = Ragged(torch.arange(int(length_C.sum())) % 30, F.pad(length_C.cumsum(0), (1, 0)))

    def of(some: Ragged) -> Tensor:
        return model.user(weights, History.of(some), rng, False)

    together = of(items)
    monkeypatch.setattr(lists, "CPU_NUMBERS", 1000)
    assert torch.equal(of(items), together)
    assert torch.equal(torch.cat([of(items.take(torch.tensor([c]))) for c in range(40)]), together)
    assert not together[0].any() and len(together.unique(dim=0)) > 20
