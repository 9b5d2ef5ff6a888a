"""Objectives of sequences: against naive loops, lists of any length, and what has no effect."""

import math

import pytest
import torch
from torch import Tensor

from covey.contract.model import History
from covey.contract.objective import Objective
from covey.core.errors import CoveyError
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.engine.client.blocks import Work, whole_batch
from covey.engine.client.planning import CostModel, plan
from covey.models.bert4rec import BERT4Rec, cloze
from covey.models.gru import GRU
from covey.models.mf import MF
from covey.models.sasrec import SASRec
from covey.objectives.next_item import NextItemSoftmax
from covey.objectives.sequence import CrossEntropy, MaskedItem, SampledSoftmax

ITEMS, D = 30, 8
LISTS = Ragged.of([[3, 1, 4, 1, 5], [9, 2], [6], []])
AVOID = Ragged.of([[1, 3, 4, 5], [2, 9], [6], []])
RNG = Rng.of(0, 1, torch.arange(len(LISTS)))
SAS, BERT = SASRec(D, dropout=0.0), BERT4Rec(D, dropout=0.0)
Sequence = SASRec | BERT4Rec | GRU | MF


def params(model: Sequence) -> Fields:
    start = model.public(ITEMS, Rng.server(0, 0, "public")) | model.private(RNG, RNG)
    stacked = {k: v if k in model.kept else v[None] for k, v in start.items()}
    return {k: (v * (5 if k == "items" else 1)).double() for k, v in stacked.items()}


def losses(
    objective: Objective, model: Sequence, lists: Ragged = LISTS, avoid: Ragged = AVOID
) -> Tensor:
    """[C], each client in the block that the engine would make."""
    whole, rng = objective.whole_table, Rng.of(0, 1, torch.arange(len(lists)))
    work = Work.of(
        objective.examples(lists, avoid, ITEMS, rng), ITEMS, whole=whole, pointwise=False, batch=0
    )
    out, sent = torch.full((len(lists),), torch.nan, dtype=torch.float64), params(model)
    for block in plan(work, CostModel(8192)):
        batch = whole_batch(work, block)
        mine = {k: v[block.pick] if k in model.kept else v for k, v in sent.items()}
        mine["items"] = sent["items"][0][batch.items_CR]
        loss_C = objective.loss(
            model, mine, batch, objective.prepare(batch), rng.take(block.pick), None
        )
        out[block.pick[: block.real]] = loss_C[: block.real].detach()
    return out


def nll(u_D: Tensor, v_ID: Tensor, target: int) -> float:
    return float((v_ID @ u_D).logsumexp(0) - u_D @ v_ID[target])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(
    "model", [SAS, GRU(D), GRU(D, cosine=True)], ids=["SASRec", "GRU", "cosines"]
)
def test_cross_entropy_of_each_next_item(model: Sequence, reduction: str) -> None:
    sent, found = params(model), losses(CrossEntropy(reduction=reduction), model)  # type: ignore[arg-type]
    for c in range(len(LISTS)):
        items = LISTS.take(torch.tensor([c])).values.tolist()
        before = [
            model.user(sent, History.of(Ragged.of([items[:p]])), RNG, False)[0]
            for p in range(len(items))
        ]
        scores = [model.score(sent, u[None], sent["items"])[0] for u in before]
        terms = [float(s.logsumexp(0) - s[item]) for s, item in zip(scores, items, strict=True)]
        expected = sum(terms) / (max(len(terms), 1) if reduction == "mean" else 1)
        assert float(found[c]) == pytest.approx(expected, abs=1e-10)


def test_cross_entropy_of_a_model_with_user_vectors() -> None:
    model, sent = MF(D), params(MF(D))
    expected = sum(nll(sent["user"][0], sent["items"][0], item) for item in (3, 1, 4, 1, 5))
    assert float(losses(CrossEntropy(), model)[0]) == pytest.approx(expected)


def test_masked_items() -> None:
    sent, found = params(BERT), losses(MaskedItem(hide=0.4), BERT)
    made = History.of(LISTS)
    hidden = cloze(made.mask_CP, 0.4, 0.1, RNG)
    u_CPD = BERT.user(sent, History(made.index_CP, made.mask_CP, hidden), RNG, True)
    for c in range(len(LISTS)):
        places = hidden[c].nonzero()[:, 0].tolist()
        expected = sum(nll(u_CPD[c, p], sent["items"][0], int(made.index_CP[c, p])) for p in places)
        assert float(found[c]) == pytest.approx(expected, abs=1e-10)


def test_sampled_softmax_has_items_that_the_client_does_not_have() -> None:
    made = SampledSoftmax(negatives=20).examples(LISTS, AVOID, ITEMS, RNG)
    for c in range(len(LISTS)):
        mine = made.items.owner == c
        drawn = made.items.values[mine & (made.label == 0)].tolist()
        own = LISTS.take(torch.tensor([c])).values.tolist()
        assert len(drawn) == len(set(drawn)) == (20 if own else 0) and set(drawn).isdisjoint(own)
    assert (made.slot is not None) and (made.slot[made.label == 0] == -1).all()


def test_sampled_softmax_of_all_items_is_cross_entropy() -> None:
    """But for what the client has: repeated items and its other items are no negatives."""
    sent, found = params(SAS), losses(SampledSoftmax(negatives=ITEMS), SAS)
    u_D = SAS.user(sent, History.of(Ragged.of([[9]])), RNG, False)[0]
    others = [i for i in range(ITEMS) if i not in (9, 2)]
    second = float((sent["items"][0][[2, *others]] @ u_D).logsumexp(0) - u_D @ sent["items"][0][2])
    assert float(found[1]) == pytest.approx(
        math.log(len(others) + 1) + second
    )  # before the first: nothing is known


def test_eq_1_with_hidden_items() -> None:
    """Its positives are the hidden items, its in-batch negatives all others of the list."""
    objective = NextItemSoftmax(local=0, in_batch=True, hide=0.4)
    sent, found = params(BERT), losses(objective, BERT)
    made = History.of(LISTS)
    hidden = cloze(made.mask_CP, 0.4, 0.1, RNG)
    u_CPD = BERT.user(sent, History(made.index_CP, made.mask_CP, hidden), RNG, True)
    items, v_ID = [9, 2], sent["items"][0]
    terms = [
        (v_ID[items] @ u_CPD[1, p]).logsumexp(0) - u_CPD[1, p] @ v_ID[items[p]]
        for p in (0, 1)
        if hidden[1, p]
    ]
    assert float(found[1]) == pytest.approx(float(sum(terms)))


OBJECTIVES = [
    (CrossEntropy(last=50), SAS),
    (SampledSoftmax(last=50, negatives=5), SAS),
    (MaskedItem(last=50), BERT),
    (SampledSoftmax(last=50, negatives=5, hide=0.2), BERT),
    (NextItemSoftmax(last=50, hide=0.2), BERT),
    (NextItemSoftmax(last=50), SAS),
]


@pytest.mark.parametrize(("objective", "model"), OBJECTIVES)
def test_lists_of_any_length(objective: Objective, model: Sequence) -> None:
    """One item, ten thousand (of which the newest count), none at all."""
    long = [k * k % 7 for k in range(10_000)]
    lists = Ragged.of([long, long[-50:], [2], []])
    avoid = Ragged.of([[0, 1, 2, 4], [0, 1, 2, 4], [2], []])
    found = losses(objective, model, lists, avoid)
    assert found.isfinite().all() and float(found[3]) == 0.0 and float(found[0]) > 0


@pytest.mark.parametrize(("objective", "model"), OBJECTIVES)
def test_an_untrained_model_knows_nothing(objective: Objective, model: Sequence) -> None:
    """The loss of a position is the logarithm of the number of candidates."""
    start = {k: v[None] for k, v in model.public(ITEMS, Rng.server(0, 0, "public")).items()}
    lists, avoid = Ragged.of([[2, 7, 4, 9]]), Ragged.of([[2, 4, 7, 9]])
    rng = Rng.of(0, 1, torch.arange(1))
    whole = objective.whole_table
    work = Work.of(
        objective.examples(lists, avoid, ITEMS, rng), ITEMS, whole=whole, pointwise=False, batch=0
    )
    (block,) = plan(work, CostModel(8192))
    batch, tables = whole_batch(work, block), dict(start)
    tables["items"] = start["items"][0][batch.items_CR]
    ready = objective.prepare(batch)
    loss = objective.loss(model, tables, batch, ready, rng.take(block.pick), None)[0]
    candidates = ITEMS if whole else 1 + (10 if isinstance(objective, NextItemSoftmax) else 5)
    hide = getattr(objective, "hide", 0.0)
    places = cloze(ready["mask"], hide, 0.1, rng.take(block.pick))[0].sum() if hide else 4
    assert float(loss) / int(places) == pytest.approx(math.log(candidates), rel=0.15)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: CrossEntropy(last=0), "last"),
        (lambda: MaskedItem(hide=1.5), "hide"),
        (lambda: SampledSoftmax(negatives=0), "negatives"),
        (lambda: NextItemSoftmax(hide=-0.1), "hide"),
    ],
)
def test_impossible_options_are_named(make: object, option: str) -> None:
    with pytest.raises(CoveyError, match=option):
        make()  # type: ignore[operator]
