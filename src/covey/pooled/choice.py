"""EASE and iALS with the settings that validation chooses; a run and its ceilings choose alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor

from covey.core import Ragged, Rng
from covey.data.split import Split
from covey.evaluate.metrics import EvaluateConfig, clients_to_measure, summarise
from covey.evaluate.ranking import distinct

from .common import evaluate_parts, held_out_parts
from .ease import Ease, FittedEase
from .ials import FittedIals, Ials

Candidates = Mapping[str, Tensor]
OfLists = FittedEase | FittedIals  # scores are computed from the users' lists in `train`
MOST = 2000  # users on whose validation items settings are chosen
SHORTLIST = 2  # settings of iALS that are compared with models that are not rough
SHARE = 0.1  # of the training items, held out for the choice if there is no validation part


def fit_chosen(
    model: Ease | Ials, split: Split, config: EvaluateConfig, candidates: Candidates | None = None
) -> tuple[OfLists, Ease | Ials]:
    """Fits a model to the training items with the settings that are best on validation.

    Without a validation part, a tenth of the training items takes its place for the choice only.
    `config` tells how validation items are ranked and the metric that selects; a sampled evaluation
    ranks the "valid" `candidates`. Returns the fitted model, and the model with these settings.
    """
    options: Sequence[Ease | Ials] = model.alternatives()
    best, parts = options[len(options) // 2], split
    if not len(split.valid.values):
        parts, config, candidates = _tenth(split), replace(config, candidates="full"), None
    users = clients_to_measure(parts.valid.lengths, MOST)
    if len(options) > 1 and len(users):
        asked = of_users(parts, users)
        some = {k: v[users] for k, v in (candidates or {}).items()}
        ready = held_out_parts(asked, config, some, ("valid",))
        data, n_items = parts.train, parts.n_items
        solve: Callable[[Any], OfLists] = model.solver(data, n_items)

        def value(option: Any, fit: Callable[[Any], OfLists]) -> float:
            fitted = with_lists(fit(option), asked.train)
            return summarise(evaluate_parts(fitted, ready, config)["valid"])[config.selector]

        if isinstance(model, Ials):
            solve, rough = cache(solve), model.solver(data, n_items, rough=True)
            shortlist = sorted(options, key=lambda option: value(option, rough))[-SHORTLIST:]
            best = max(shortlist, key=lambda option: value(option, solve))
        else:
            best = options[_peak(lambda place: value(options[place], solve), len(options))]
        if parts is split:
            return solve(best), best
    return best.fit(split.train, split.n_items), best


def _peak(value: Callable[[int], float], many: int) -> int:
    """A place between two with lower values, by a climb from the middle."""
    best, values = many // 2, dict[int, float]()
    while True:
        near = [place for place in (best, best + 1, best - 1) if 0 <= place < many]
        values |= {place: value(place) for place in near if place not in values}
        best, before = max(near, key=values.__getitem__), best
        if best == before:
            return best


def _tenth(split: Split) -> Split:
    """Holds out a tenth of the training items of all users, the same ones in every run."""
    train, rng = split.train, Rng.server(0, 0, "choice-of-settings")
    held_T = rng.uniform(len(train.values))[0].to(train.values.device) < SHARE
    return replace(split, train=train.keep(~held_T), valid=train.keep(held_T))


def with_lists(fitted: OfLists, lists: Ragged) -> OfLists:
    """The same model with other lists, which it computes scores from."""
    return replace(fitted, train=distinct(lists).to(fitted.items().device))


def of_users(split: Split, users_C: Tensor) -> Split:
    parts = (part.take(users_C) for part in (split.train, split.valid, split.test))
    return Split(len(users_C), split.n_items, *parts)
