"""Losses: worked by hand, against naive loops, and what each makes of a list."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from covey.contract.examples import Batch, Examples
from covey.contract.model import History
from covey.contract.objective import Objective
from covey.core.errors import CoveyError
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.engine.client.blocks import Work, whole_batch
from covey.engine.client.planning import CostModel, plan
from covey.models.mf import MF
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.pairs import Bce, Bpr, NoObjective

RNG = Rng.of(0, 1, torch.arange(2))
ITEMS = 30
LISTS = Ragged.of([[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 8, 7, 0, 2, 4, 1], []])
AVOID = Ragged.of([[1, 3, 4, 5], [2, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8], []])
D = 4


def log_sigmoid(z: float) -> float:
    return -math.log(1 + math.exp(-z))


def scored(
    z: list[list[float]], label: list[list[float]], weight: list[list[float]]
) -> tuple[Fields, Batch]:
    """Clients whose scores are the given ones: a user vector of 1 and items of one dimension."""
    z_CL = torch.tensor(z, dtype=torch.float64)
    index_CL = torch.arange(z_CL.shape[1]).expand_as(z_CL)
    real_CL = torch.ones_like(z_CL, dtype=torch.bool)
    params = {
        "user": torch.ones(len(z), 1, dtype=torch.float64),
        "items": z_CL[..., None].requires_grad_(),
    }
    return params, Batch(index_CL, real_CL, index_CL, torch.tensor(label), torch.tensor(weight))


def loss_of(objective: Objective, params: Fields, batch: Batch) -> Tensor:
    return objective.loss(MF(1), params, batch, objective.prepare(batch), RNG, None)


def test_bce_by_hand() -> None:
    params, batch = scored(
        [[2.0, -1.0, 0.5], [0.0, 3.0, 9.0]], [[1, 0, 0.25], [1, 0, 1]], [[1, 2, 1], [1, 1, 0]]
    )
    first = (
        -log_sigmoid(2.0)
        - 2 * log_sigmoid(1.0)
        - (0.25 * log_sigmoid(0.5) + 0.75 * log_sigmoid(-0.5))
    )
    second = math.log(2) - log_sigmoid(-3.0)
    assert loss_of(Bce(reduction="sum"), params, batch).tolist() == pytest.approx([first, second])
    assert loss_of(Bce(), params, batch).tolist() == pytest.approx([first / 4, second / 2])


@pytest.mark.parametrize("objective", [Bce(), Bce(saturating=True), Bpr(negatives=2)])
def test_an_offset_is_part_of_the_logit_and_of_no_parameter(objective: Objective) -> None:
    offset = torch.tensor([[0.5, -1.0, 2.0]])
    params, batch = scored([[2.0, -1.0, 0.5]], [[1, 0, 0]], [[1, 1, 1]])
    whole, same = scored([[2.5, -2.0, 2.5]], [[1, 0, 0]], [[1, 1, 1]])
    ours, theirs = (
        loss_of(objective, params, replace(batch, offset_CL=offset)),
        loss_of(objective, whole, same),
    )
    torch.testing.assert_close(ours, theirs)
    slopes = [
        torch.autograd.grad(x.sum(), p["items"])[0] for x, p in ((ours, params), (theirs, whole))
    ]
    torch.testing.assert_close(*slopes)


def test_saturating_bce_is_bce_until_the_probability_rounds_to_one() -> None:
    params, batch = scored([[2.0, -1.0, 6.0]], [[1, 0, 0]], [[1, 2, 1]])
    plain, published = (loss_of(Bce(saturating=s), params, batch) for s in (False, True))
    torch.testing.assert_close(plain, published, rtol=0, atol=1e-12)


def test_saturated_wrong_predictions_have_no_gradient_as_published() -> None:
    params, batch = scored([[200.0, -200.0], [0.0, 0.0]], [[0, 1], [0, 1]], [[1, 1], [1, 1]])
    params = {k: v.detach().float().requires_grad_() for k, v in params.items()}
    sums = {s: loss_of(Bce(saturating=s, reduction="sum"), params, batch) for s in (False, True)}
    assert sums[True].tolist() == pytest.approx(
        [200.0, 2 * math.log(2)]
    )  # the logarithm stops at -100
    assert sums[False].tolist() == pytest.approx([400.0, 2 * math.log(2)])
    slope = {
        s: torch.autograd.grad(sums[s].sum(), params["items"])[0][..., 0].tolist() for s in sums
    }
    assert slope[True] == [[0.0, 0.0], [0.5, -0.5]]
    assert slope[False] == [[1.0, -1.0], [0.5, -0.5]]


def test_bpr_by_hand() -> None:
    label = [[1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
    weight = [
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 0, 0],
    ]  # the second negative of a positive does not exist; padding
    scores = [[2.0, 1.0, 3.0, -1.0, 0.5, 9.0], [0.0, 0.0, 1.0, 7.0, 7.0, 7.0]]
    params, batch = scored(scores, label, weight)
    first = -(log_sigmoid(1.0) + log_sigmoid(-1.0) + log_sigmoid(-1.5)) / 3
    second = -(log_sigmoid(0.0) + log_sigmoid(-1.0)) / 2
    assert loss_of(Bpr(negatives=2), params, batch).tolist() == pytest.approx([first, second])


def test_bpr_makes_no_pairs_of_what_a_mechanism_appended() -> None:
    params, batch = scored([[2.0, 1.0, 5.0, 3.0]], [[1, 0, 0, 0]], [[1, 1, 1, 1]])
    assert loss_of(Bpr(), params, batch).tolist() == pytest.approx([-log_sigmoid(1.0)])


def test_positives_come_with_their_negatives() -> None:
    rng = Rng.of(0, 1, torch.arange(4))
    for objective in (Bce(negatives=3), Bpr(negatives=3)):
        made = objective.examples(LISTS, AVOID, ITEMS, rng)
        assert made.items.lengths.tolist() == [20, 8, 36, 0]
        assert torch.equal(made.items.values[made.label == 1], LISTS.values)
        avoided = torch.isin(
            made.items.owner * ITEMS + made.items.values, AVOID.owner * ITEMS + AVOID.values
        )
        assert torch.equal(avoided, made.label == 1)


@dataclass(frozen=True)
class Positions(MF):
    """Two kinds of user vectors: one per position, by a rule that a loop can follow."""

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        place_P1 = torch.arange(history.index_CP.shape[1], dtype=params["user"].dtype)[:, None]
        return params["user"][:, None] * (1 + 0.3 * place_P1)


def naive_loss(u_PD: Tensor, v_ID: Tensor, own: list[int], negatives: list[list[int]]) -> Tensor:
    """Eq. 1, word for word: sum over positions, sum over the list of negatives."""
    loss = torch.zeros((), dtype=v_ID.dtype)
    for j, target in enumerate(own):
        below = torch.exp(u_PD[j] @ v_ID[target])
        for n in negatives[j]:
            if n != target:
                below = below + torch.exp(u_PD[j] @ v_ID[n])
        loss = loss - torch.log(torch.exp(u_PD[j] @ v_ID[target]) / below)
    return loss


def split_up(
    examples: Examples, client: int, positions: int, in_batch: bool, hard: list[int]
) -> list[list[int]]:
    """The negatives of each position of a client."""
    mine = examples.items.owner == client
    assert examples.slot is not None
    own = LISTS.take(torch.tensor([client])).values.tolist()
    out = []
    for j in range(positions):
        local = examples.items.values[
            mine & (examples.label == 0) & (examples.slot == j) & (examples.weight > 0)
        ]
        out.append(local.tolist() + hard + [n for k, n in enumerate(own) if k != j] * in_batch)
    return out


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("model", [MF(D), Positions(D)])
def test_next_item_softmax_is_eq_1(in_batch: bool, whole: bool, model: MF) -> None:
    objective = NextItemSoftmax(stored=8, local=3, in_batch=in_batch)
    rng = Rng.of(0, 1, torch.arange(len(LISTS)))
    examples = objective.examples(LISTS, AVOID, ITEMS, rng)
    hard = [[20, 21, 20], [4], [], [1, 2]]  # one of them twice
    lists = Ragged.of(hard)
    examples = examples.append(lists, torch.zeros(len(lists.values)))
    work = Work.of(examples, ITEMS, whole=whole, pointwise=False, batch=0)
    torch.manual_seed(0)
    v_ID, u_CD = (
        torch.randn(n, D, dtype=torch.float64, requires_grad=True) for n in (ITEMS, len(LISTS))
    )
    seen = 0
    for block in plan(work, CostModel(10_000)):
        batch = whole_batch(work, block)
        params = {"items": v_ID[batch.items_CR], "user": u_CD[block.pick]}
        loss_C = objective.loss(
            model, params, batch, objective.prepare(batch), rng.take(block.pick), None
        )
        for row, client in enumerate(block.pick[: block.real].tolist()):
            own = LISTS.take(torch.tensor([client])).values.tolist()
            scale_P1 = 1 + 0.3 * torch.arange(len(own), dtype=torch.float64)[:, None] * isinstance(
                model, Positions
            )
            negatives = split_up(examples, client, len(own), in_batch, hard[client])
            naive = naive_loss(u_CD[client] * scale_P1, v_ID, own, negatives)
            torch.testing.assert_close(loss_C[row], naive, rtol=0, atol=1e-12)
            if own:
                ours, theirs = (
                    torch.autograd.grad(x, (v_ID, u_CD), retain_graph=True)
                    for x in (loss_C[row], naive)
                )
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
            seen += 1
    assert seen == len(LISTS)


def test_local_negatives_are_some_of_the_stored_ones_and_distinct() -> None:
    objective = NextItemSoftmax(stored=6, local=4)
    stored: list[set[int]] = [set() for _ in range(len(LISTS))]
    sets: set[tuple[int, ...]] = set()
    for number in range(1, 30):
        made = objective.examples(LISTS, AVOID, ITEMS, Rng.of(0, number, torch.arange(len(LISTS))))
        assert made.slot is not None
        negative = made.label == 0
        keys = list(
            zip(made.items.owner[negative].tolist(), made.slot[negative].tolist(), strict=True)
        )
        drawn: dict[tuple[int, int], list[int]] = {key: [] for key in keys}
        for key, item in zip(keys, made.items.values[negative].tolist(), strict=True):
            drawn[key].append(item)
            stored[key[0]].add(item)
        assert all(len(set(items)) == 4 for items in drawn.values())
        sets |= {tuple(sorted(items)) for (client, _), items in drawn.items() if client == 0}
    assert [len(s) for s in stored] == [6, 6, 6, 0]  # the same six in every round
    assert len(sets) == math.comb(6, 4)


def test_few_or_no_negatives_left() -> None:
    lists, avoid = Ragged.of([[0, 1], [2]]), Ragged.of([[0, 1, 2, 3], [0, 2]])
    made = NextItemSoftmax(stored=5, local=3).examples(
        lists, avoid, 4, Rng.of(0, 1, torch.arange(2))
    )
    assert made.items.lengths.tolist() == [8, 4]
    assert made.weight.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert set(made.items.values[9:11].tolist()) == {1, 3}
    alone = NextItemSoftmax(local=0, in_batch=True).examples(
        lists, avoid, 4, Rng.of(0, 1, torch.arange(2))
    )
    assert torch.equal(alone.items.values, lists.values)


def test_only_the_newest_items_are_trained_on() -> None:
    made = NextItemSoftmax(local=0, last=3).examples(
        LISTS, AVOID, ITEMS, Rng.of(0, 1, torch.arange(4))
    )
    assert made.items.padded(3).tolist() == [[4, 1, 5], [9, 2, 0], [2, 4, 1], [0, 0, 0]]
    assert made.slot is not None and made.slot.tolist() == [0, 1, 2, 0, 1, 0, 1, 2]


def test_more_local_than_stored_is_an_error() -> None:
    with pytest.raises(CoveyError, match="stored"):
        NextItemSoftmax(stored=3, local=4)


def test_a_client_has_the_same_width_whoever_stands_beside() -> None:
    objective = NextItemSoftmax(stored=8, local=3, last=3)
    examples = objective.examples(LISTS, AVOID, ITEMS, Rng.of(0, 1, torch.arange(len(LISTS))))
    widths: dict[int, set[int]] = {c: set() for c in range(len(LISTS))}
    for pick in ([0, 1, 2, 3], [0], [1, 2], [3, 0]):
        some = torch.tensor(pick)
        flat = examples.items.where(some)
        assert examples.slot is not None
        part = Examples(
            examples.items.take(some),
            *(x[flat.values] for x in (examples.label, examples.weight, examples.slot)),
        )
        work = Work.of(part, ITEMS, whole=False, pointwise=False, batch=0)
        for block in plan(work, CostModel(10_000)):
            wide = objective.prepare(whole_batch(work, block))["mask"].shape[1]
            for row in block.pick.tolist():
                widths[pick[row]].add(wide)
    assert all(len(w) == 1 for w in widths.values())
    assert (
        max(map(max, widths.values())) == 3
    )  # padding of the examples makes no list longer than any can be


def test_no_objective_has_nothing_to_learn() -> None:
    made = NoObjective().examples(LISTS, AVOID, ITEMS, RNG)
    assert made.items.lengths.tolist() == [0, 0, 0, 0]
    params, batch = scored([[1.0]], [[1]], [[1]])
    assert loss_of(NoObjective(), params, batch).tolist() == [0.0]


def test_moved_negatives_of_positions_are_an_error() -> None:
    objective = NextItemSoftmax(stored=8, local=3)
    made = objective.examples(LISTS, AVOID, ITEMS, Rng.of(0, 1, torch.arange(len(LISTS))))
    assert made.slot is not None
    slot = torch.where(made.label == 0, 0, made.slot)
    work = Work.of(
        Examples(made.items, made.label, made.weight, slot),
        ITEMS,
        whole=False,
        pointwise=False,
        batch=0,
    )
    batches = [whole_batch(work, block) for block in plan(work, CostModel(10_000))]
    with pytest.raises(CoveyError, match="only append"):
        [objective.prepare(batch) for batch in batches]
