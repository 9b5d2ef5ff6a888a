"""What the server does with an update: addition by hand, Adam against torch's own."""

import torch

from covey.aggregate.grouping import Everyone, Nobody
from covey.aggregate.step import Adam, Add
from covey.contract.views import ServerView
from covey.core.messages import Catalogue, Round, Total
from covey.core.ragged import FieldDict, Fields
from covey.models.mf import MF
from covey.objectives.pairs import Bce
from covey.testing.compare import clone, expect_same


def test_add() -> None:
    params = {"items": torch.tensor([1.0, 2.0]), "bias": torch.tensor([5.0])}
    memory, new = Add().step({}, params, {"items": torch.tensor([0.5, -1.0])})
    assert memory == {} and new["items"].tolist() == [1.5, 1.0] and new["bias"].tolist() == [5.0]
    assert Add(0.5).step({}, params, {"items": torch.tensor([0.5, -1.0])})[1]["items"].tolist() == [
        1.25,
        1.5,
    ]
    assert params["items"].tolist() == [1.0, 2.0]


def test_adam_is_torch_adam_on_the_negative_update() -> None:
    torch.manual_seed(0)
    start = torch.randn(4, 3, dtype=torch.float64)
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=0.03, betas=(0.8, 0.95), eps=1e-6)
    params: Fields = {"items": start}
    memory: FieldDict = {}
    for _ in range(5):
        d = torch.randn(4, 3, dtype=torch.float64) * (torch.rand(4, 1) > 0.5)
        before = clone((memory, params))
        memory_next, params_next = Adam(0.03, 0.8, 0.95, 1e-6).step(memory, params, {"items": d})
        expect_same(before, (memory, params))
        memory, params = memory_next, params_next
        theirs.grad = -d
        optimiser.step()
    assert torch.allclose(params["items"], theirs.detach(), rtol=1e-12, atol=1e-14)


def test_adam_counts_each_parameter_by_itself() -> None:
    params = {"a": torch.zeros(1), "b": torch.zeros(1)}
    memory, params = Adam(1.0).step({}, params, {"a": torch.ones(1)})
    memory, params = Adam(1.0).step(memory, params, {"a": torch.ones(1), "b": torch.ones(1)})
    assert int(memory["a/t"]) == 2 and int(memory["b/t"]) == 1
    assert torch.allclose(params["b"], torch.ones(1))  # a first step has the size of the rate
    assert all(isinstance(v, torch.Tensor) for v in memory.values())


def view() -> ServerView:
    public = {"items": torch.zeros(3, 1), "bias": torch.zeros(1)}
    return ServerView(
        public, {"x": torch.ones(1)}, Round(1, torch.arange(2)), 0, "x", MF(1), Bce(), Catalogue(3)
    )


def test_everyone_shares_everything_and_nobody_nothing() -> None:
    total = Total(torch.arange(2), torch.tensor(2.0))
    memory, groups = Everyone().groups(view(), total)
    assert [(g.names, g.rows, g.public) for g in groups] == [(("items", "bias"), None, True)]
    assert set(memory) == {"x"}
    assert list(Nobody().groups(view(), total)[1]) == []
