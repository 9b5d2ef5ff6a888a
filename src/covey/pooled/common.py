"""What the pooled models share: the fitted model's interface, selection and evaluation.

Shape suffixes: C = users of a chunk, N = all users, I = items, L = candidates of a user (the held-out one
first), T = pairs of a user and an item, or list entries of all users together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.ragged import Ragged
from covey.core.rng import Rng
from covey.evaluate.metrics import EvaluateConfig, measure, summarise, with_held
from covey.evaluate.ranking import (
    Top,
    distinct,
    keep_heap,
    merged,
    nothing,
    ranks_of,
    ranks_sampled,
    span,
    top_of,
)

PARTS = ("valid", "test")
CPU_CHUNK = 3 << 18  # scores at a time: 3 MB, so that ranking finds them in the cache
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


@runtime_checkable
class Listening(Fitted, Protocol):
    """A fitted model that computes a user's scores from the user's list."""

    def knowing(self, known: Ragged) -> Fitted:
        """The same model for users of whom something else is known."""
        ...


OnEpoch = Callable[[int, Fitted], bool | None]  # True: stop here


@dataclass(frozen=True)
class FitRequest:
    """What a pooled model is trained on.

    Args:
        train: The training items of every user, oldest first.
        avoid: Items of every user that are never drawn as negatives; sorted and distinct.
        n_items: The size of the catalogue.
        seed: The seed of the start, of the order of examples and of negatives.
        device: Where the model is trained.
        on_epoch: Called as `on_epoch(epoch, fitted)` after every epoch, from epoch 1 on. Training
            stops where it returns True.
    """

    train: Ragged
    avoid: Ragged
    n_items: int
    seed: int = 0
    device: torch.device | str = "cpu"
    on_epoch: OnEpoch | None = None

    def stops(self, epoch: int, fitted: Callable[[], Fitted]) -> bool:
        """Reports an epoch. `fitted` makes a copy of the model, and is called only if it is needed."""
        return self.on_epoch is not None and bool(self.on_epoch(epoch, fitted()))


class Trainable(Protocol):
    """Options of a model that is trained in epochs."""

    @property
    def epochs(self) -> int: ...

    def fit(self, request: FitRequest) -> Fitted:
        """The trained model."""
        ...


class SplitLike(Protocol):
    """What evaluation needs of a split: items per user."""

    @property
    def train(self) -> Ragged: ...
    @property
    def valid(self) -> Ragged: ...
    @property
    def test(self) -> Ragged: ...


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """An order of 0..count-1, the same on every device."""
    key = int(Rng.server(seed, epoch, "pooled-shuffle").key_C)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key))


@dataclass(frozen=True)
class HeldOutPart:
    """What users are asked in one part of a split, made ready once for many models."""

    held: Ragged  # distinct
    hidden: Ragged
    known: Ragged  # what a user has done before
    items_NL: Tensor | None = None  # sampled: the held-out item and its candidates


def exams(
    split: SplitLike,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    parts: Sequence[str] = PARTS,
    device: torch.device | str = "cpu",
) -> dict[str, HeldOutPart]:
    """The exam of each part. Train items are hidden in validation, train and validation items in the test."""
    made = {}
    for part in parts:
        held = distinct(getattr(split, part))
        seen = split.train if part == "valid" else merged(split.train, split.valid)
        hidden = seen if config.seen == "filtered" else nothing(len(held), held.values.device)
        items_NL = None
        if config.candidates == "sampled":
            if candidates is None or part not in candidates:
                raise CoveyError(
                    f"evaluate.candidates is 'sampled' but the {part} part has no candidates"
                )
            items_NL = with_held(held, candidates[part]).to(device)
        made[part] = HeldOutPart(held.to(device), hidden.to(device), seen.to(device), items_NL)
    return made


def evaluate_pooled(
    fitted: Fitted,
    split: SplitLike,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    parts: Sequence[str] = PARTS,
    chunk: int | None = None,
) -> dict[str, dict[str, Tensor]]:
    """Metrics of each user, [N] each, for the 'valid' and 'test' parts, `chunk` users at a time.

    A sampled evaluation needs the `candidates` of each part, [N, L - 1] item ids.
    """
    return examine(
        fitted, exams(split, config, candidates, parts, fitted.items().device), config, chunk
    )


@torch.no_grad()
def examine(
    fitted: Fitted,
    papers: Mapping[str, HeldOutPart],
    config: EvaluateConfig,
    chunk: int | None = None,
) -> dict[str, dict[str, Tensor]]:
    """`evaluate_pooled` on exams made ready before."""
    if isinstance(fitted, Listening):
        return {
            k: _examine(fitted.knowing(e.known), {k: e}, config, chunk)[k]
            for k, e in papers.items()
        }
    return _examine(fitted, papers, config, chunk)


def _examine(
    fitted: Fitted, papers: Mapping[str, HeldOutPart], config: EvaluateConfig, chunk: int | None
) -> dict[str, dict[str, Tensor]]:
    keep_heap()
    device, n_items = fitted.items().device, len(fitted.items())
    chunk = chunk or max(1, (CPU_CHUNK if device.type == "cpu" else CUDA_CHUNK) // n_items)
    users = torch.arange(max(len(e.held) for e in papers.values()), device=device).split(chunk)
    sampled = config.candidates == "sampled"
    ranks = (
        _ranks_sampled(fitted, papers, users)
        if sampled
        else _ranks_full(fitted, papers, config, users)
    )
    return {part: measure(ranks[part], exam.held.lengths, config) for part, exam in papers.items()}


def _ranks_full(
    fitted: Fitted,
    papers: Mapping[str, HeldOutPart],
    config: EvaluateConfig,
    users: Sequence[Tensor],
) -> dict[str, Ragged]:
    """Ranks of held-out items in the catalogue; scores are computed once for all parts."""
    tops: dict[str, list[Top]] = {part: [] for part in papers}
    last = list(papers)[-1]
    for users_C in users:
        score_CI, start, stop = fitted.score(users_C), int(users_C[0]), int(users_C[-1]) + 1
        for part, exam in papers.items():
            held, hidden = span(exam.held, start, stop), span(exam.hidden, start, stop)
            tops[part].append(
                top_of(score_CI, held, hidden, config.cutoffs[-1], overwrite=part == last)
            )
    return {part: ranks_of(Top.cat(tops[part]), exam.held) for part, exam in papers.items()}


def _ranks_sampled(
    fitted: Fitted, papers: Mapping[str, HeldOutPart], users: Sequence[Tensor]
) -> dict[str, Ragged]:
    """Rank of each user's held-out item among its candidates."""
    ranks = {}
    for part, exam in papers.items():
        assert exam.items_NL is not None
        rank_N = torch.cat(
            [ranks_sampled(fitted.score_items(u_C, exam.items_NL[u_C])) for u_C in users]
        )
        ranks[part] = exam.held.like(rank_N[exam.held.lengths > 0])
    return ranks


@dataclass(frozen=True)
class Selected:
    """The fitted model of the best validation epoch, the first of equals, and the selecting metric by epoch."""

    fitted: Fitted
    epoch: int
    history: dict[int, float]


def fit_selected(
    model: Trainable,
    request: FitRequest,
    split: SplitLike,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    patience: int = 0,
) -> Selected:
    """Train, evaluate on validation every `config.every` epochs and keep the best epoch.

    Args:
        model: The options of the model.
        request: What to train on; its `on_epoch` is replaced.
        split: Whose validation part selects the epoch.
        config: How validation items are ranked, and how often.
        candidates: Items to rank in a sampled evaluation, [N, L - 1] for the "valid" part.
        patience: Evaluations without a new best before training stops; 0 means never.
    """
    if not len(split.valid.values):
        raise CoveyError("nothing is held out for validation, so no epoch can be selected")
    if config.every > model.epochs:
        raise CoveyError(
            f"no epoch would be evaluated: evaluate.every = {config.every}, but epochs = {model.epochs}"
        )
    papers = exams(split, config, candidates, ("valid",), request.device)
    best: list[tuple[Fitted, int]] = []
    history: dict[int, float] = {}

    def on_epoch(epoch: int, fitted: Fitted) -> bool:
        if epoch % config.every:
            return False
        history[epoch] = summarise(examine(fitted, papers, config)["valid"])[config.selector]
        if not best or history[epoch] > history[best[0][1]]:
            best[:] = [(fitted, epoch)]
        return 0 < patience * config.every <= epoch - best[0][1]

    model.fit(replace(request, on_epoch=on_epoch))
    return Selected(*best[0], history)
