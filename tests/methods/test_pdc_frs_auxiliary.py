"""The auxiliary model's training equals that by PyTorch's own Adam on the same batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.views import ServerView
from covey.core.messages import Catalogue, Round
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.methods.pdc_frs_auxiliary import WARM_UP, Auxiliary, RepeatedStep
from covey.models.ncf import NCF
from covey.objectives.pairs import Bce

LISTS = Ragged.of([[0, 1, 2, 3], [5, 1, 2], [8, 9, 10, 11, 3, 4, 5, 6, 7], [9, 10, 11]])
MODEL, ITEMS = NCF(4, (6, 3), scale=0.3), 40
MINE = Auxiliary(epochs=3, lr=0.01, batch=24, negatives=4)


def look(device: str = "cpu") -> ServerView:
    public = {
        k: v.double().to(device) for k, v in MODEL.public(ITEMS, Rng.server(0, 0, "public")).items()
    }
    return ServerView(public, {}, Round(1, torch.arange(4)), 0, "x", MODEL, Bce(), Catalogue(ITEMS))


def start(device: str = "cpu") -> Fields:
    user = MODEL.private(Rng.of(0, 0, torch.arange(4)), Rng.server(0, 0, "start"))["user"].double()
    return {"user": user.to(device), **{k: v[None].clone() for k, v in look(device).public.items()}}


def plainly(leaves: Fields) -> int:
    """The shuffled examples, 3 rows of 8 at a time; the last batch of an epoch is smaller."""
    view = look()
    owner_R, items_RW, label_RW, weight_RW = MINE._rows(view, LISTS, leaves["items"])
    moving = [x.requires_grad_() for x in leaves.values()]
    adam, steps = torch.optim.Adam(moving, lr=MINE.lr), 0
    for epoch in range(MINE.epochs):
        order_R = view.server_rng.fold(f"order {epoch}").permutation(len(owner_R))[0]
        for pick_B in order_R.split(3):
            z_BW = torch.stack([_scores(leaves, int(owner_R[r]), items_RW[r]) for r in pick_B])
            loss_BW = F.binary_cross_entropy_with_logits(z_BW, label_RW[pick_B], reduction="none")
            adam.zero_grad()
            ((loss_BW * weight_RW[pick_B]).sum() / weight_RW[pick_B].sum()).backward()
            adam.step()
            steps += 1
    return steps


def _scores(leaves: Fields, user: int, items_W: Tensor) -> Tensor:
    return MODEL.score(leaves, leaves["user"][[user]], leaves["items"][:, items_W])[0]


def test_rows_of_examples_hold_every_user_apart() -> None:
    """Users with 3, 0 and 9 of 40 items: rows of 8 examples, with weight 1 + 4 for each item."""
    lists = Ragged.of([[1, 2, 3], [], list(range(10, 19))])
    parts = Auxiliary(1, 0.1, 64, 4)._rows(look(), lists, torch.zeros(1, dtype=torch.float64))
    owner_R, items_RW, label_RW, weight_RW = parts
    assert sorted(set(owner_R.tolist())) == [0, 2] and items_RW.shape[1] == 8
    for user, many in ((0, 3), (2, 9)):
        mine, mine_weight = owner_R == user, weight_RW[owner_R == user]
        assert float(mine_weight.sum()) == 5 * many
        liked = items_RW[mine][(label_RW[mine] == 1) & (mine_weight > 0)]
        assert liked.tolist() == lists.values[lists.owner == user].tolist()
        seen = items_RW[mine][mine_weight > 0].tolist()
        assert len(seen) == len(set(seen))
        assert set(label_RW[mine].unique().tolist()) == {0.0, 1.0}


def test_it_is_adam_on_shuffled_rows() -> None:
    ours, theirs, before = start(), start(), start()
    MINE.train(look(), ours, LISTS)
    rows = len(MINE._rows(look(), LISTS, before["items"])[0])
    assert rows % 3 and plainly(theirs) == 3 * -(-rows // 3)  # the last batch is not full
    for name, value in ours.items():
        assert not value.requires_grad
        torch.testing.assert_close(value, theirs[name].detach(), rtol=0, atol=1e-9)
        assert float((value - before[name]).abs().max()) > 1e-3


def test_again_on_a_cpu_is_the_step() -> None:
    count = torch.zeros(())

    def step() -> None:
        count.add_(1)

    again = RepeatedStep(step, torch.device("cpu"))
    for _ in range(WARM_UP + 2):
        again()
    assert int(count) == WARM_UP + 2 and again.graph is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_recorded_step_does_what_the_step_does(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, plain, cpu = start("cuda"), start("cuda"), start()
    MINE.train(look("cuda"), recorded, LISTS)
    monkeypatch.setattr("covey.methods.pdc_frs_auxiliary.WARM_UP", 1 << 30)
    MINE.train(look("cuda"), plain, LISTS)
    MINE.train(look(), cpu, LISTS)
    for name, value in recorded.items():
        assert torch.equal(value, plain[name]), name
        torch.testing.assert_close(value.cpu(), cpu[name], rtol=0, atol=1e-6)
