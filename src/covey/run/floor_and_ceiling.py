"""What stands beside every result: the popularity floor, and a ceiling on pooled data."""

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

EVERY_ITEM = 20_000  # largest catalogue for which the pooled ceiling is computed beside a run


def some_of(held_N: Tensor, many: int) -> Tensor:
    """Which clients are measured when not all are: spread evenly over those with something held out."""
    with_some = (held_N > 0).nonzero()[:, 0]
    return with_some[:: max(1, len(with_some) // many)][:many]


def references(config: Config, prepared: Prepared) -> dict[str, Any]:
    """Fitted on everybody's training items, measured on the clients that the run is measured on."""
    whole = asked = prepared.split
    candidates = prepared.candidates
    if config.evaluate.clients:
        ids = some_of(whole.test.lengths, config.evaluate.clients)
        asked = Split(
            len(ids),
            whole.n_items,
            whole.train.take(ids),
            whole.valid.take(ids),
            whole.test.take(ids),
        )
        candidates = {k: v[ids] for k, v in candidates.items()}
    models: dict[str, Popularity | Ease] = {"popularity": Popularity()}
    if "ease" in config.run.ceilings and whole.n_items <= EVERY_ITEM:
        models["ease"] = Ease()
    out = {}
    for name, model in models.items():
        fitted = model.fit(whole.train, whole.n_items)
        if isinstance(fitted, FittedEase):
            fitted = replace(fitted, train=asked.train)
        figures = evaluate_pooled(fitted, asked, config.evaluate, candidates, ("test",))
        out[name] = summarise(figures["test"], asked.train.lengths)
    return {"floor": {"popularity": out.pop("popularity")}, "ceiling": out}
