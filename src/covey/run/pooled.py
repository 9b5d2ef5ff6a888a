"""Runs of methods that see everybody's data: floors and ceilings."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey.core.ragged import Fields
from covey.evaluate.metrics import summarise
from covey.pooled.common import FitRequest, Fitted, HistoryBased, evaluate_pooled, fit_selected
from covey.pooled.ease import Ease
from covey.pooled.mf import FittedMF
from covey.pooled.ncf import FittedNCF
from covey.pooled.popularity import Popularity
from covey.pooled.sequence import FittedSequence
from covey.run.config.schema import Config

from . import checkpoint
from .assemble import Prepared, device_of
from .floor_and_ceiling import some_of


def run_pooled(config: Config, prepared: Prepared, out: Path) -> dict[str, Any]:
    """Fits, measures and writes the model and each user's test figures."""
    fitted, epoch = fit_pooled(config, prepared)
    save_pooled(fitted, out)
    ids_C, figures = _measured(config, prepared, fitted)
    users: Fields = {"clients": ids_C, **{f"test/{k}": v for k, v in figures["test"].items()}}
    checkpoint.save_model(users, out / checkpoint.USERS)
    sees = isinstance(fitted, HistoryBased) and bool(len(prepared.split.valid.values))
    return {
        "rounds": epoch,
        "round": epoch,
        **_summaries(prepared, ids_C, figures),
        "sees_validation": sees,
    }


def fit_pooled(config: Config, prepared: Prepared) -> tuple[Fitted, int]:
    """The model, and the epoch that validation selected."""
    model, split, exams = config.part("pooled"), prepared.split, prepared.candidates or None
    if isinstance(model, Popularity | Ease):
        return model.fit(split.train, split.n_items), 0
    seed, device = config.run.seed, device_of(config)
    request = FitRequest(split.train, prepared.avoid, split.n_items, seed, device)
    patience = getattr(model, "patience", 0)
    best = fit_selected(model, request, split, config.evaluate, exams, patience)
    return best.fitted, best.epoch


def save_pooled(fitted: Fitted, out: Path) -> None:
    """Nothing where the model is a closed form of the data."""
    if isinstance(fitted, FittedSequence):
        checkpoint.save_model({k: v[0] for k, v in fitted.params.items()}, out / checkpoint.MODEL)
    elif isinstance(fitted, FittedMF | FittedNCF):
        flat = {f"{k:02}": p for k, p in enumerate(fitted.params())}
        checkpoint.save_model(flat, out / checkpoint.MODEL)


def pooled_figures(config: Config, prepared: Prepared, fitted: Fitted) -> dict[str, Any]:
    return _summaries(prepared, *_measured(config, prepared, fitted))


def _measured(
    config: Config, prepared: Prepared, fitted: Fitted
) -> tuple[Tensor, dict[str, Fields]]:
    """Who is measured, as in federated runs, and the figures of each."""
    figures = evaluate_pooled(fitted, prepared.split, config.evaluate, prepared.candidates or None)
    ids_C = torch.arange(prepared.split.n_users)
    if config.evaluate.clients:
        ids_C = some_of(prepared.split.test.lengths, config.evaluate.clients)
    return ids_C, {
        part: {k: v.cpu()[ids_C] for k, v in mine.items()} for part, mine in figures.items()
    }


def _summaries(prepared: Prepared, ids_C: Tensor, figures: dict[str, Fields]) -> dict[str, Any]:
    activity_C = prepared.split.train.lengths[ids_C]
    held = {
        part: mine
        for part, mine in figures.items()
        if not all(bool(v.isnan().all()) for v in mine.values())
    }
    return {part: summarise(mine, activity_C) for part, mine in held.items()}
