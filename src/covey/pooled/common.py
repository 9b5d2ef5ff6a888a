"""What pooled models have in common: the interface of a fitted model, its selection and evaluation.

Shape suffixes: C = users of a chunk, N = all users, I = items, L = items to rank for a user, the
held-out one first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from covey.core import CoveyError, Ragged, Rng
from covey.data import Split
from covey.evaluate import EvaluateConfig, measure, ranks_of, ranks_sampled, summarise, top_of
from covey.evaluate.metrics import with_held
from covey.evaluate.ranking import Top, distinct, keep_heap, merged, nothing, span

PARTS = ("valid", "test")
CPU_CHUNK = 3 << 18  # scores at a time: 3 MB, which fit in the cache
CUDA_CHUNK = 1 << 26
OnEpoch = Callable[[int, "Fitted"], bool | None]  # True: stop here
Parts = Mapping[str, "HeldOutPart"]
Metrics = dict[str, dict[str, Tensor]]  # by part, then by name


class Fitted(Protocol):
    """A model trained on all users' items; users are numbered as in the training data."""

    def score(self, users_C: Tensor) -> Tensor:
        """Scores of all items, [C, I], in new memory, as evaluation overwrites it."""

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items of each user, [C, L]."""

    def items(self) -> Tensor:
        """One vector per item, [I, D]."""


@runtime_checkable
class HistoryBased(Fitted, Protocol):
    """A fitted model that computes a user's scores from the user's items."""

    def with_history(self, known: Ragged) -> Fitted:
        """The same model with other items of each user, oldest first."""


@dataclass(frozen=True)
class FitRequest:
    """What a model is trained on, and how its training is observed."""

    train: Ragged  # the training items of every user, oldest first
    avoid: Ragged  # items of every user that are never drawn as negatives; sorted and distinct
    n_items: int
    seed: int = 0  # of initial values, of the order of examples and of negatives
    device: torch.device | str = "cpu"
    on_epoch: OnEpoch | None = None  # called after every epoch, from 1 on

    def stops(self, epoch: int, fitted: Callable[[], Fitted]) -> bool:
        """Reports an epoch; `fitted` copies the model and is called only if `on_epoch` is set."""
        return self.on_epoch is not None and bool(self.on_epoch(epoch, fitted()))


class Trainable(Protocol):
    """Options of a model that is trained in epochs."""

    @property
    def epochs(self) -> int: ...
    def fit(self, request: FitRequest) -> Fitted: ...


def shuffled(count: int, seed: int, epoch: int) -> Tensor:
    """A random order of 0..count-1, the same on every device."""
    key = int(Rng.server(seed, epoch, "pooled-shuffle").key_C)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key))


@dataclass(frozen=True)
class HeldOutPart:
    """The held-out items of one part of a split, prepared once for evaluating many models."""

    held: Ragged  # distinct
    hidden: Ragged  # items that are left out of the ranking
    known: Ragged  # a user's items before the held-out ones
    items_NL: Tensor | None = None  # sampled evaluation: the held-out item and its candidates


def held_out_parts(
    split: Split,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    parts: Sequence[str] = PARTS,
    device: torch.device | str = "cpu",
) -> dict[str, HeldOutPart]:
    """Prepares parts for evaluation: what a user has had before a part is hidden in it."""
    made = {}
    for part in parts:
        held, items_NL = distinct(getattr(split, part)), None
        seen = split.train if part == "valid" else merged(split.train, split.valid)
        hidden = seen if config.seen == "filtered" else nothing(len(held), held.values.device)
        if config.candidates == "sampled":
            if candidates is None or part not in candidates:
                wrong = f"the {part} part has no candidates"
                raise CoveyError(f"evaluate.candidates is 'sampled' but {wrong}")
            items_NL = with_held(held, candidates[part]).to(device)
        made[part] = HeldOutPart(held.to(device), hidden.to(device), seen.to(device), items_NL)
    return made


def evaluate_pooled(
    fitted: Fitted,
    split: Split,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    parts: Sequence[str] = PARTS,
    chunk: int | None = None,
) -> dict[str, dict[str, Tensor]]:
    """Evaluates a fitted model on the held-out items of the parts "valid" and "test" of a split.

    A sampled evaluation ranks `candidates` in each part, [N, L - 1]. `chunk` users are scored at a
    time, by default as many as memory allows. Returns the metrics of every user, [N] each, by part.
    """
    ready = held_out_parts(split, config, candidates, parts, fitted.items().device)
    return evaluate_parts(fitted, ready, config, chunk)


@torch.no_grad()
def evaluate_parts(
    fitted: Fitted, parts: Parts, config: EvaluateConfig, chunk: int | None = None
) -> Metrics:
    """`evaluate_pooled` for parts that are prepared already."""
    if isinstance(fitted, HistoryBased):
        own = ((k, fitted.with_history(part.known), part) for k, part in parts.items())
        return {k: _metrics(mine, {k: part}, config, chunk)[k] for k, mine, part in own}
    return _metrics(fitted, parts, config, chunk)


def _metrics(fitted: Fitted, parts: Parts, config: EvaluateConfig, chunk: int | None) -> Metrics:
    keep_heap()
    device, n_items = fitted.items().device, len(fitted.items())
    chunk = chunk or max(1, (CPU_CHUNK if device.type == "cpu" else CUDA_CHUNK) // n_items)
    users = torch.arange(max(len(p.held) for p in parts.values()), device=device).split(chunk)
    ranks = {} if config.candidates == "sampled" else _ranks_full(fitted, parts, config, users)
    for k, part in parts.items():
        if (items_NL := part.items_NL) is not None:
            blocks = [ranks_sampled(fitted.score_items(u_C, items_NL[u_C])) for u_C in users]
            ranks[k] = part.held.like(torch.cat(blocks)[part.held.lengths > 0])
    return {k: measure(ranks[k], part.held.lengths, config) for k, part in parts.items()}


def _ranks_full(
    fitted: Fitted, parts: Parts, config: EvaluateConfig, users: Sequence[Tensor]
) -> dict[str, Ragged]:
    """Ranks of held-out items in the catalogue; scores are computed once for all parts."""
    tops: dict[str, list[Top]] = {k: [] for k in parts}
    last = list(parts)[-1]
    for users_C in users:
        score_CI, start, stop = fitted.score(users_C), int(users_C[0]), int(users_C[-1]) + 1
        for k, part in parts.items():
            held, hidden = span(part.held, start, stop), span(part.hidden, start, stop)
            tops[k].append(top_of(score_CI, held, hidden, config.cutoffs[-1], overwrite=k == last))
    return {k: ranks_of(Top.cat(tops[k]), part.held) for k, part in parts.items()}


@dataclass(frozen=True)
class Selected:
    """The model of the best validation epoch, the first of equal ones."""

    fitted: Fitted
    epoch: int
    history: dict[int, float]  # the selecting metric by epoch


def fit_selected(
    model: Trainable,
    request: FitRequest,
    split: Split,
    config: EvaluateConfig,
    candidates: Mapping[str, Tensor] | None = None,
    patience: int = 0,
) -> Selected:
    """Trains, evaluates on validation every `config.every` epochs and keeps the best epoch.

    The `on_epoch` of the request is replaced. A sampled evaluation ranks the "valid" `candidates`,
    [N, L - 1]. After `patience` evaluations without a new best training stops; 0 means never.
    """
    if not len(split.valid.values):
        raise CoveyError("nothing is held out for validation, so no epoch can be selected")
    if config.every > model.epochs:
        wrong = "no epoch would be evaluated"
        raise CoveyError(f"{wrong}: evaluate.every = {config.every}, but epochs = {model.epochs}")
    parts = held_out_parts(split, config, candidates, ("valid",), request.device)
    best: list[tuple[Fitted, int]] = []
    history: dict[int, float] = {}

    def on_epoch(epoch: int, fitted: Fitted) -> bool:
        if epoch % config.every:
            return False
        history[epoch] = summarise(evaluate_parts(fitted, parts, config)["valid"])[config.selector]
        if not best or history[epoch] > history[best[0][1]]:
            best[:] = [(fitted, epoch)]
        return 0 < patience * config.every <= epoch - best[0][1]

    model.fit(replace(request, on_epoch=on_epoch))
    return Selected(*best[0], history)
