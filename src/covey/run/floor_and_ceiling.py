"""References for every result: popularity as the floor, and EASE on pooled data as the ceiling."""

import logging
from dataclasses import replace
from typing import Any

from torch import Tensor

from covey.data.split import Split
from covey.evaluate.metrics import summarise
from covey.pooled.common import evaluate_pooled
from covey.pooled.ease import Ease, FittedEase
from covey.pooled.popularity import Popularity
from covey.run.config.schema import Config

from .assemble import Prepared

_log = logging.getLogger(__name__)
LARGEST_CATALOGUE = 20_000  # items; for larger ones no pooled ceiling is computed beside a run


def clients_to_measure(held_N: Tensor, many: int) -> Tensor:
    """Chooses which clients are measured if not all are.

    Args:
        held_N: The number of held-out items of each client.
        many: The number of clients to choose.

    Returns:
        Places of clients that have held-out items, spread evenly over all such clients.
    """
    with_some = (held_N > 0).nonzero()[:, 0]
    return with_some[:: max(1, len(with_some) // many)][:many]


def references(config: Config, prepared: Prepared) -> dict[str, Any]:
    """Fits on the training items of all users; measures the same clients as the run."""
    whole = asked = prepared.split
    candidates = prepared.candidates
    if config.evaluate.clients:
        ids = clients_to_measure(whole.test.lengths, config.evaluate.clients)
        parts = (part.take(ids) for part in (whole.train, whole.valid, whole.test))
        asked = Split(len(ids), whole.n_items, *parts)
        candidates = {k: v[ids] for k, v in candidates.items()}
    models: dict[str, Popularity | Ease] = {"popularity": Popularity()}
    if "ease" in config.run.ceilings and whole.n_items <= LARGEST_CATALOGUE:
        models["ease"] = Ease()
    out = {}
    for name, model in models.items():
        _log.info("reference model %s: fit and evaluation begin", name)
        fitted = model.fit(whole.train, whole.n_items)
        if isinstance(fitted, FittedEase):
            fitted = replace(fitted, train=asked.train)
        metrics = evaluate_pooled(fitted, asked, config.evaluate, candidates, ("test",))
        out[name] = summarise(metrics["test"], asked.train.lengths)
        _log.info("reference model %s: evaluated on %d users", name, asked.n_users)
    return {"floor": {"popularity": out.pop("popularity")}, "ceiling": out}
