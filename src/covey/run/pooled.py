"""Runs of models that train on pooled data: floors and ceilings for federated ones."""

import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from covey.core.ragged import Fields
from covey.data.split import hold_out, pool
from covey.evaluate.metrics import clients_to_measure, summarise
from covey.evaluate.personal import best_items, drawn
from covey.evaluate.personal import summary as personal
from covey.evaluate.ranking import merged
from covey.pooled import common
from covey.pooled.choice import fit_chosen
from covey.pooled.common import Fitted, HistoryBased, evaluate_pooled
from covey.pooled.ease import Ease
from covey.pooled.ials import Ials
from covey.pooled.mf import FittedMF
from covey.pooled.ncf import FittedNCF
from covey.pooled.popularity import Popularity
from covey.pooled.sequence import FittedSequence
from covey.run.config.schema import Config

from . import checkpoint, selection
from .assemble import Prepared, device_of

Parts = dict[str, Fields]  # by held-out part, the metrics of each user
_log = logging.getLogger(__name__)


def run_pooled(config: Config, prepared: Prepared, out: Path) -> dict[str, Any]:
    """Fits, evaluates, and writes the model and the test metrics of each user."""
    fitted, epoch, chosen = fit_pooled(config, prepared)
    save_pooled(fitted, out)
    ids_C, metrics = _evaluate(config, prepared, fitted)
    users: Fields = {"clients": ids_C, **{f"test/{k}": v for k, v in metrics["test"].items()}}
    checkpoint.save_model(users, out / checkpoint.USERS)
    sees = isinstance(fitted, HistoryBased) and bool(len(prepared.split.valid.values))
    averages = _averages(prepared, ids_C, metrics)
    own = {"lists": pooled_lists(config, prepared, fitted), "sees_validation": sees}
    return {"rounds": epoch, "round": epoch, **averages, **own, **chosen}


def fit_pooled(config: Config, prepared: Prepared) -> tuple[Fitted, int, dict[str, Any]]:
    """Returns the fitted model, and the epoch and the settings that validation chose."""
    model, split, exams = config.part("pooled"), prepared.split, prepared.candidates or None
    _log.info("fit of %s on pooled data of %d users begins", type(model).__name__, split.n_users)
    if isinstance(model, Popularity):
        return model.fit(split.train, split.n_items), 0, {}
    if isinstance(model, Ease | Ials):
        best, options = fit_chosen(model, split, config.evaluate, exams)
        return best, 0, {"chosen": asdict(options)}
    seed, device = config.run.seed, device_of(config)
    request = common.FitRequest(split.train, prepared.avoid, split.n_items, seed, device)
    patience = getattr(model, "patience", 0)
    if selection.lacks_validation(config, split):
        some = hold_out(split, config.split)
        early = replace(request, train=some.train, avoid=pool(some, config.negatives.pool))
        how = replace(config.evaluate, candidates="full")
        epoch = common.fit_selected(model, early, some, how, None, patience).epoch
        _log.info("validation selected epoch %d; the fit starts on all items", epoch)
        return replace(model, epochs=epoch).fit(request), epoch, {}
    made = common.fit_selected(model, request, split, config.evaluate, exams, patience)
    _log.info("fit of %s ends; validation selected epoch %d", type(model).__name__, made.epoch)
    return made.fitted, made.epoch, {}


def save_pooled(fitted: Fitted, out: Path) -> None:
    """Writes the model's parameters; a model in closed form has none and is fitted again."""
    if isinstance(fitted, FittedSequence):
        checkpoint.save_model({k: v[0] for k, v in fitted.params.items()}, out / checkpoint.MODEL)
    elif isinstance(fitted, FittedMF | FittedNCF):
        flat = {f"{k:02}": p for k, p in enumerate(fitted.params())}
        checkpoint.save_model(flat, out / checkpoint.MODEL)


def pooled_averages(config: Config, prepared: Prepared, fitted: Fitted) -> dict[str, Any]:
    """Evaluates a fitted model; returns averages over users for each held-out part."""
    return _averages(prepared, *_evaluate(config, prepared, fitted))


@torch.no_grad()
def pooled_lists(config: Config, prepared: Prepared, fitted: Fitted) -> dict[str, Any]:
    """Compares the best items of some users, scored as in the test."""
    split, device = prepared.split, fitted.items().device
    users_C = drawn(torch.arange(split.n_users), config.run.seed).to(device)
    if isinstance(fitted, HistoryBased):
        fitted = fitted.with_history(merged(split.train, split.valid).to(device))
    blocks = users_C.split(max(1, common.CPU_CHUNK // split.n_items))
    item_CK = torch.cat([best_items(fitted.score(some_C).cpu()) for some_C in blocks])
    return personal(item_CK, split.n_items)


def _evaluate(config: Config, prepared: Prepared, fitted: Fitted) -> tuple[Tensor, Parts]:
    metrics = evaluate_pooled(fitted, prepared.split, config.evaluate, prepared.candidates or None)
    ids_C = torch.arange(prepared.split.n_users)
    if config.evaluate.clients:
        ids_C = clients_to_measure(prepared.split.test.lengths, config.evaluate.clients)
    return ids_C, {p: {k: v.cpu()[ids_C] for k, v in own.items()} for p, own in metrics.items()}


def _averages(prepared: Prepared, ids_C: Tensor, metrics: Parts) -> dict[str, Any]:
    activity_C = prepared.split.train.lengths[ids_C]
    out = {}
    for part, own in metrics.items():
        if not all(bool(v.isnan().all()) for v in own.values()):
            out[part] = summarise(own, activity_C)
    return out
