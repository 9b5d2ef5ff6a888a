"""SASRec and BERT4Rec against plain loops, with shared and personal weights and any padding."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.model import History
from covey.core.errors import CoveyError
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng
from covey.models.attention import Dropout
from covey.models.base import drop_by_bits
from covey.models.bert4rec import BERT4Rec, cloze
from covey.models.gru import GRU
from covey.models.sasrec import SASRec

ITEMS, D = 11, 8
SAS = SASRec(dim=D, heads=2, last=6, dropout=0.0)
BERT = BERT4Rec(dim=D, heads=2, last=6, dropout=0.0)
MODELS = [SAS, BERT]
LISTS = [[3, 1, 4], [1, 5, 9, 2], [], [6]]
RNG = Rng.of(0, 1, torch.arange(len(LISTS)))


def params(model: SASRec | BERT4Rec, clients: int = 1) -> Fields:
    """Weights of one model, or as many different ones, none of them zero."""
    out = []
    for seed in range(clients):
        rng = Rng.server(seed, 0, "public")
        start = model.public(ITEMS, rng)
        out.append(
            {k: v + 0.3 * rng.fold(f"more {k}").normal(*v.shape)[0] for k, v in start.items()}
        )
    return {k: torch.stack([m[k] for m in out]).double() for k in out[0]}


def history(lists: list[list[int]] = LISTS, hidden: list[list[int]] | None = None) -> History:
    """Some positions may be hidden."""
    made = History.of(Ragged.of(lists))
    where = torch.zeros_like(made.mask_CP)
    for c, places in enumerate(hidden or []):
        where[c, places] = True
    return History(made.index_CP, made.mask_CP, where)


def layer_norm(x_D: Tensor, norm_2D: Tensor) -> Tensor:
    spread = ((x_D - x_D.mean()) ** 2).mean()
    return (x_D - x_D.mean()) / (spread + 1e-5).sqrt() * norm_2D[0] + norm_2D[1]


def looks(q_D: Tensor, keys: list[Tensor], values: list[Tensor], heads: int) -> Tensor:
    """One query in every head."""
    parts = []
    for h in range(heads):
        mine = slice(h * D // heads, (h + 1) * D // heads)
        weight = torch.stack([q_D[mine] @ k[mine] / math.sqrt(D / heads) for k in keys]).softmax(0)
        parts.append(sum(w * v[mine] for w, v in zip(weight, values, strict=True)))
    return torch.cat(parts)


def naive_sasrec(one: Fields, items: list[int]) -> list[Tensor]:
    """States after each item, position by position."""
    w, b, norm = one["w"], one["b"], one["norm"]
    xs = [one["items"][i] * math.sqrt(D) + one["positions"][p] for p, i in enumerate(items)]
    for n in (0, 5):
        keys, values = [x @ w[n + 1] + b[n + 1] for x in xs], [x @ w[n + 2] + b[n + 2] for x in xs]
        out = []
        for p, x in enumerate(xs):
            q = layer_norm(x, norm[2 * n // 5])
            a = q + looks(q @ w[n] + b[n], keys[: p + 1], values[: p + 1], 2)
            y = layer_norm(a, norm[2 * n // 5 + 1])
            out.append(y + (y @ w[n + 3] + b[n + 3]).relu() @ w[n + 4] + b[n + 4])
        xs = out
    return [layer_norm(x, norm[-1]) for x in xs]


def naive_bert(one: Fields, items: list[int], hidden: list[int]) -> list[Tensor]:
    """Vectors at each position."""
    w, b, norm = one["w"], one["b"], one["norm"]
    shown = [one["mask"] if p in hidden else one["items"][i] for p, i in enumerate(items)]
    xs = [layer_norm(x + one["positions"][p], norm[0]) for p, x in enumerate(shown)]
    for n in (0, 1):
        through = [[x @ w[4 * n + k] + b[5 * n + k] for x in xs] for k in range(3)]
        a = [looks(q, through[1], through[2], 2) @ w[4 * n + 3] + b[5 * n + 3] for q in through[0]]
        xs = [layer_norm(x + y, norm[2 * n + 1]) for x, y in zip(xs, a, strict=True)]
        wide = [F.gelu(x @ one["w_up"][n] + one["b_up"][n]) for x in xs]
        xs = [
            layer_norm(x + y @ one["w_down"][n] + b[5 * n + 4], norm[2 * n + 2])
            for x, y in zip(xs, wide)
        ]
    return [layer_norm(F.gelu(x @ one["w_head"] + one["b_head"]), norm[-1]) for x in xs]


@pytest.mark.parametrize("clients", [1, len(LISTS)])
def test_sasrec_is_the_plain_loop(clients: int) -> None:
    stacked = params(SAS, clients)
    before_CPD, after_CD = (
        SAS.user(stacked, history(), RNG, training) for training in (True, False)
    )
    for c, items in enumerate(LISTS):
        states = [
            torch.zeros(D).double(),
            *naive_sasrec({k: v[c % clients] for k, v in stacked.items()}, items),
        ]
        torch.testing.assert_close(after_CD[c], states[-1], rtol=0, atol=1e-12)
        for p in range(len(items)):
            torch.testing.assert_close(before_CPD[c, p], states[p], rtol=0, atol=1e-12)


@pytest.mark.parametrize("clients", [1, len(LISTS)])
def test_bert4rec_is_the_plain_loop(clients: int) -> None:
    stacked, hidden = params(BERT, clients), [[1], [0, 3], [], [0]]
    u_CPD = BERT.user(stacked, history(LISTS, hidden), RNG, True)
    next_CD = BERT.user(stacked, history(), RNG, False)
    for c, items in enumerate(LISTS):
        one = {k: v[c % clients] for k, v in stacked.items()}
        for p, expected in enumerate(naive_bert(one, items, hidden[c])):
            torch.testing.assert_close(u_CPD[c, p], expected, rtol=0, atol=1e-12)
        asked = naive_bert(one, [*items, 0], [len(items)])[-1]
        torch.testing.assert_close(next_CD[c], asked, rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_one_set_of_weights_and_one_for_each_agree_with_their_gradients(
    model: SASRec | BERT4Rec,
) -> None:
    shared = {k: v.requires_grad_() for k, v in params(model).items()}
    own = {
        k: v.detach().expand(len(LISTS), *v.shape[1:]).clone().requires_grad_()
        for k, v in shared.items()
    }
    weigh_CPD = RNG.normal(4, D, dtype=torch.float64)
    known = history(LISTS, [[1], [0, 3], [], [0]])
    one, many = (model.user(p, known, RNG, True) for p in (shared, own))
    torch.testing.assert_close(one, many, rtol=0, atol=1e-12)
    single = torch.autograd.grad((one * weigh_CPD).sum(), list(shared.values()), allow_unused=True)
    each = torch.autograd.grad((many * weigh_CPD).sum(), list(own.values()), allow_unused=True)
    for s, e in zip(single, each, strict=True):
        torch.testing.assert_close(s, e.sum(0, keepdim=True), rtol=0, atol=1e-11)


def test_sasrec_does_not_look_ahead_and_bert4rec_does() -> None:
    one, other = [[3, 1, 4, 1]], [[3, 1, 7, 2]]
    sas = [
        SAS.user(params(SAS), history(x), RNG.take(torch.tensor([0])), True) for x in (one, other)
    ]
    assert torch.equal(sas[0][:, :3], sas[1][:, :3]) and not torch.equal(sas[0][:, 3], sas[1][:, 3])
    bert = [BERT.user(params(BERT), history(x, [[0]]), RNG, True) for x in (one, other)]
    assert not torch.isclose(bert[0][0, 0], bert[1][0, 0]).all()
    unseen = [BERT.user(params(BERT), history(x, [[2, 3]]), RNG, True) for x in (one, other)]
    assert torch.equal(*unseen)  # what is hidden does not reach any vector


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("training", [True, False])
def test_padding_does_not_reach_a_vector(model: SASRec | BERT4Rec, training: bool) -> None:
    alone = model.user(params(model), history([[3, 1, 4]], [[1]]), RNG, training)
    beside = model.user(
        params(model), history([[3, 1, 4], [1, 5, 9, 2, 6]], [[1], [0]]), RNG, training
    )
    torch.testing.assert_close(
        alone[0], beside[0, : alone.shape[1]] if training else beside[0], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_lists_of_any_length(model: SASRec | BERT4Rec) -> None:
    """The newest `last` - 1 items count, of ten thousand as of six; one item or none is enough."""
    long = [k * k % ITEMS for k in range(10_000)]
    u_CD = model.user(params(model), history([long, long[-5:], [2], []]), RNG, False)
    torch.testing.assert_close(u_CD[0], u_CD[1], rtol=0, atol=1e-12)
    assert u_CD.isfinite().all() and u_CD[2].any()
    trained = model.user(params(model), history([[2]], [[0]]), RNG.take(torch.tensor([0])), True)
    assert trained.shape == (1, 1, D) and trained.isfinite().all()


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("many", [1, 2, 3, 9])
def test_the_same_bits_whoever_is_asked_beside(model: SASRec | BERT4Rec, many: int) -> None:
    stacked = {k: v.float() for k, v in params(model).items()}
    lists = [list(range(k % 7)) for k in range(40)]
    together = model.user(stacked, history(lists), RNG, False)
    assert torch.equal(model.user(stacked, history(lists[:many]), RNG, False), together[:many])


@pytest.mark.parametrize(
    "model", [SASRec(D, dropout=0.5), BERT4Rec(D, dropout=0.5), GRU(D, dropout=0.5)]
)
def test_dropout_is_the_clients_own(model: SASRec | BERT4Rec | GRU) -> None:
    """The same alone and in a cohort with any padding; new in each round; none in evaluation."""
    assert model.stochastic
    start = model.public(ITEMS, Rng.server(0, 0, "public"))
    stacked = {k: v[None].double() for k, v in start.items()}
    known, wide = (
        history([[3, 1, 4], [5, 9, 2]], [[1], [1]]),
        history([[3, 1, 4], [5, 9, 2, 8, 1]], [[1], [1]]),
    )
    first, second = Rng.of(0, 1, torch.arange(2)), Rng.of(0, 2, torch.arange(2))
    u_CPD = model.user(stacked, known, first, True)
    torch.testing.assert_close(
        model.user(stacked, wide, first, True)[0, :3], u_CPD[0], rtol=0, atol=1e-12
    )
    assert not torch.isclose(model.user(stacked, known, second, True)[:, 2], u_CPD[:, 2]).all()
    off = type(model)(D, dropout=0.0)
    torch.testing.assert_close(
        model.user(stacked, known, first, False), off.user(stacked, known, first, False)
    )


def test_dropout_keeps_the_mean() -> None:
    x = drop_by_bits(torch.ones(1, 100_000), Rng.of(0, 0, torch.arange(1)).bits(100_000), 0.3)
    assert x.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float(x.mean()) == pytest.approx(1.0, abs=0.01)
    maps = Dropout(0.3, Rng.of(0, 0, torch.arange(2))).of_map(torch.ones(2, 2, 100, 100), "here")
    assert maps.mean((2, 3)).flatten().tolist() == pytest.approx([1.0] * 4, abs=0.05)
    assert not torch.equal(maps[0, 0], maps[0, 1]) and not torch.equal(maps[0, 0], maps[1, 0])


def test_what_is_hidden() -> None:
    many = 4000
    mask = torch.arange(12) < torch.tensor([0, 1, 5, 10]).repeat(many)[:, None]
    rng = Rng.of(0, 1, torch.arange(4 * many))
    hidden = cloze(mask, 0.2, 0.0, rng)
    assert not (hidden & ~mask).any()
    counts = hidden.sum(1).view(many, 4)
    assert not counts[:, 0].any() and counts[:, 1:].min() == 1  # none of nothing, else one at least
    assert float(counts[:, 3].double().mean()) == pytest.approx(10 * 0.2 + 0.8**10, abs=0.1)
    ends = cloze(mask, 0.2, 0.999, rng).view(many, 4, 12)[:, 3]
    assert (
        float((ends.sum(1) == 1).double().mean()) > 0.99
        and float(ends[:, 9].double().mean()) > 0.99
    )
    assert torch.equal(cloze(mask[:, :11], 0.2, 0.1, rng), cloze(mask, 0.2, 0.1, rng)[:, :11])


def test_bert4rec_needs_something_hidden() -> None:
    with pytest.raises(CoveyError, match="MaskedItem"):
        BERT.user(params(BERT), History.of(Ragged.of(LISTS)), RNG, True)


@pytest.mark.parametrize(
    "options", [{"heads": 3}, {"dropout": 1.0}, {"last": 1}, {"layers": 0}, {"dim": 0}]
)
@pytest.mark.parametrize("model", [SASRec, BERT4Rec])
def test_impossible_options_are_named(
    model: type[SASRec] | type[BERT4Rec], options: dict[str, float]
) -> None:
    with pytest.raises(CoveyError, match=next(iter(options))):
        model(**{"dim": 8, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
def test_nothing_is_private(model: SASRec | BERT4Rec) -> None:
    assert model.kept == () and model.private(RNG, RNG) == {}
    assert set(model.shared) == set(model.public(ITEMS, Rng.server(0, 0, "public")))
