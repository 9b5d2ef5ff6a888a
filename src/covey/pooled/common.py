"""What the pooled models share: the fitted model's interface, training on pairs, selection and evaluation.

Shape suffixes: C = users of a chunk, N = all users, I = items, L = candidates of a user (the held-out one
first), T = pairs of a user and an item, or list entries of all users together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import CoveyError, Ragged
from covey.evaluate import (
    EvaluateConfig,
    Top,
    distinct,
    measure,
    merged,
    nothing,
    ranks_of,
    ranks_sampled,
    span,
    summarise,
    top_of,
    with_held,
)
from covey.rng import Rng

PARTS = ("valid", "test")
CPU_CHUNK = 1 << 19  # scores at a time: 8 MB, so that ranking finds them in the cache
CUDA_CHUNK = 1 << 26


class Fitted(Protocol):
    """A model that has seen everybody's training items; users are rows of the training data."""

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I], in memory of their own: evaluation writes into it."""
        ...

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""
        ...

    def items(self) -> Tensor:
        """One vector per item, [I, D]."""
        ...


class PairModel(Fitted, Protocol):
    """A fitted model that is trained in place, pair by pair."""

    def params(self) -> list[Tensor]:
        """What is trained."""
        ...

    def logit(self, users_T: Tensor, items_T: Tensor) -> Tensor:
        """Score of each pair, [T], with gradients."""
        ...

    def frozen(self) -> Fitted:
        """A copy that further training leaves alone."""
        ...


class PairOptions(Protocol):
    """How to train on pairs; part of the options of MF and of NCF."""

    @property
    def lr(self) -> float: ...
    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def negatives(self) -> int: ...
    @property
    def decay(self) -> float: ...


OnEpoch = Callable[[int, Fitted], bool | None]  # True: stop here


class Trainable(Protocol):
    """Options of a model that is trained in epochs."""

    def fit(
        self,
        train: Ragged,
        avoid: Ragged,
        n_items: int,
        seed: int,
        device: torch.device | str = "cpu",
        on_epoch: OnEpoch | None = None,
    ) -> Fitted:
        """Train on items per user, with negatives outside `avoid`; call `on_epoch(epoch, fitted)` from epoch 1 on."""
        ...


class SplitLike(Protocol):
    """What evaluation needs of a split: items per user."""

    @property
    def train(self) -> Ragged: ...
    @property
    def valid(self) -> Ragged: ...
    @property
    def test(self) -> Ragged: ...


def table(seed: int, purpose: str, rows: int, dim: int, device: torch.device | str) -> Tensor:
    """A new embedding table, N(0, 0.01)."""
    return (Rng.server(seed, 0, purpose).normal(rows, dim)[0] * 0.01).to(device)


def train_pairs(
    options: PairOptions,
    model: PairModel,
    train: Ragged,
    avoid: Ragged,
    seed: int,
    on_epoch: OnEpoch | None = None,
) -> Fitted:
    """Minimise the cross entropy of positives and fresh negatives by Adam, in shuffled minibatches."""
    device, n_items = model.items().device, len(model.items())
    train, avoid = train.to(device), distinct(avoid.to(device))
    params = [p.requires_grad_() for p in model.params()]
    optimiser = torch.optim.Adam(params, lr=options.lr, weight_decay=options.decay, fused=True)
    for epoch in range(1, options.epochs + 1):
        users_T, items_T, label_T = pairs(train, avoid, n_items, options.negatives, seed, epoch)
        for rows_T in shuffled(len(label_T), seed, epoch).to(device).split(options.batch):
            optimiser.zero_grad()
            logit_T = model.logit(users_T[rows_T], items_T[rows_T])
            F.binary_cross_entropy_with_logits(logit_T, label_T[rows_T]).backward()
            optimiser.step()
        if on_epoch is not None and on_epoch(epoch, model.frozen()):
            break
    return model.frozen()


def pairs(
    train: Ragged, avoid: Ragged, n_items: int, negatives: int, seed: int, epoch: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Users, items and labels of an epoch, [T] each: all positives, then some negatives for each of them."""
    ids_N = torch.arange(len(train), device=train.values.device)
    drawn = outside(Rng.of(seed, epoch, ids_N).fold("pooled-negatives"), avoid, n_items, train.lengths * negatives)
    label_T = torch.ones(len(train.values) + len(drawn.values), device=ids_N.device)
    label_T[len(train.values) :] = 0
    return torch.cat([train.owner, drawn.owner]), torch.cat([train.values, drawn.values]), label_T


def outside(rng: Rng, avoid: Ragged, n_items: int, draws_N: Tensor) -> Ragged:
    """Items drawn uniformly from those not in the user's list, which is sorted and distinct.

    The r-th of the remaining items is r + j, where j listed items come before it: those whose value less
    their place in the list is at most r. So there is nothing to reject and to draw again.
    """
    free_N = n_items - avoid.lengths
    u = rng.ragged_uniform(draws_N * (free_N > 0))  # nothing to draw from: nothing drawn
    owner_T = u.owner
    r_T = (u.values * free_N[owner_T]).long()
    before = avoid.owner * n_items + avoid.values - avoid.place
    j_T = torch.searchsorted(before, owner_T * n_items + r_T, right=True) - avoid.offsets[owner_T]
    return u.like(r_T + j_T)


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """An order of 0..count-1, the same on every device."""
    key = int(Rng.server(seed, epoch, "pooled-shuffle").key_C)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key))


def evaluate_pooled(
    fitted: Fitted,
    split: SplitLike,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    parts: Sequence[str] = PARTS,
    chunk: int | None = None,
) -> dict[str, dict[str, Tensor]]:
    """Metrics of each user, [N] each, for the 'valid' and 'test' parts, `chunk` users at a time.

    Train items are hidden in validation, train and validation items in the test, as `evaluate_scores`
    says. A sampled evaluation needs the `candidates` of each part, [N, L - 1] item ids.
    """
    device, n_items = fitted.items().device, len(fitted.items())
    held = {part: distinct(getattr(split, part).to(device)) for part in parts}
    chunk = chunk or max(1, (CPU_CHUNK if device.type == "cpu" else CUDA_CHUNK) // n_items)
    if config.candidates == "sampled":
        ranks = {part: _ranks_sampled(fitted, held[part], candidates, part, chunk) for part in parts}
    else:
        hidden = {part: _hidden(split, part, config).to(device) for part in parts}
        ranks = _ranks_full(fitted, held, hidden, config.cutoffs[-1], chunk)
    return {part: measure(ranks[part], held[part].lengths, config) for part in parts}


def _hidden(split: SplitLike, part: str, config: EvaluateConfig) -> Ragged:
    if config.seen == "kept":
        return nothing(len(split.train))
    return split.train if part == "valid" else merged(split.train, split.valid)


def _ranks_full(
    fitted: Fitted, held: Mapping[str, Ragged], hidden: Mapping[str, Ragged], depth: int, chunk: int
) -> dict[str, Ragged]:
    """Ranks of every part's held-out items; scores are computed once for all parts."""
    tops: dict[str, list[Top]] = {part: [] for part in held}
    last = list(held)[-1]
    for users_C in _chunks(fitted, len(next(iter(held.values()))), chunk):
        score_CI, start, stop = fitted.score(users_C), int(users_C[0]), int(users_C[-1]) + 1
        for part in held:
            own, seen = span(held[part], start, stop), span(hidden[part], start, stop)
            tops[part].append(top_of(score_CI, own, seen, depth, spoil=part == last))
    return {part: ranks_of(Top.cat(tops[part]), held[part]) for part in held}


def _ranks_sampled(
    fitted: Fitted, held: Ragged, candidates: Mapping[str, Tensor] | None, part: str, chunk: int
) -> Ragged:
    """Rank of every user's held-out item among the candidates."""
    if candidates is None or part not in candidates:
        raise CoveyError(f"evaluate.candidates is 'sampled', which needs the candidates of the {part} part")
    items_NL = with_held(held, candidates[part].to(held.values.device))
    users = _chunks(fitted, len(held), chunk)
    rank_N = torch.cat([ranks_sampled(fitted.score_items(users_C, items_NL[users_C])) for users_C in users])
    return held.like(rank_N[held.lengths > 0])


def _chunks(fitted: Fitted, users: int, chunk: int) -> Sequence[Tensor]:
    return torch.arange(users, device=fitted.items().device).split(chunk)


@dataclass(frozen=True)
class Selected:
    """The fitted model of the best validation epoch, the first of equals, and the selecting metric by epoch."""

    fitted: Fitted
    epoch: int
    history: dict[int, float]


def fit_selected(
    model: Trainable,
    split: SplitLike,
    avoid: Ragged,
    n_items: int,
    config: EvaluateConfig,
    seed: int,
    device: torch.device | str = "cpu",
    candidates: Mapping[str, Tensor] | None = None,
    patience: int = 0,
) -> Selected:
    """Train, evaluate on validation every `config.every` epochs and keep the best epoch.

    Training stops early after `patience` evaluations without a new best; 0 is never.
    """
    best: list[tuple[Fitted, int]] = []
    history: dict[int, float] = {}

    def on_epoch(epoch: int, fitted: Fitted) -> bool:
        if epoch % config.every:
            return False
        found = evaluate_pooled(fitted, split, config, candidates, ("valid",))["valid"]
        history[epoch] = summarise(found)[config.selector]
        if not best or history[epoch] > history[best[0][1]]:
            best[:] = [(fitted, epoch)]
        return 0 < patience * config.every <= epoch - best[0][1]

    last = model.fit(split.train, avoid, n_items, seed, device, on_epoch)
    fitted, epoch = best[0] if best else (last, 0)
    return Selected(fitted, epoch, history)
