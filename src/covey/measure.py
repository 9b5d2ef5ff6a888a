"""A client measures itself: it ranks its held-out items with what it ranks its recommendations with."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .core import Drawer, Fields, Ragged, Rows
from .evaluate.metrics import EvaluateConfig, evaluate_scores, with_held
from .evaluate.ranking import merged
from .models.base import History, Model, rows
from .rng import Rng


@dataclass(frozen=True)
class HeldOut:
    """What evaluation alone may see."""

    valid: Ragged
    test: Ragged
    candidates: Fields = field(default_factory=dict)  # "valid", "test": [C, K] items of a sampled ranking
    parts: tuple[str, ...] = ()  # those measured, also where some clients have nothing held out; (): those not empty

    def __post_init__(self) -> None:
        found = tuple(k for k in ("valid", "test") if len(getattr(self, k).values))
        object.__setattr__(self, "parts", self.parts or found)

    def take(self, pick: Tensor) -> "HeldOut":
        picked = {k: v[pick] for k, v in self.candidates.items()}
        return HeldOut(self.valid.take(pick), self.test.take(pick), picked, self.parts)


@dataclass(frozen=True)
class Ranker:
    """Scores of a cohort: tables as received, what each client keeps, its own update of some rows on top."""

    model: Model
    params: Fields  # whole tables, leading 1 where shared
    tuned: Rows | None
    rng: Rng

    @classmethod
    def of(cls, model: Model, params: Fields, kept: Drawer, rng: Rng) -> "Ranker":
        tuned = kept.get("tuned/items")
        return cls(model, params, tuned if isinstance(tuned, Rows) else None, rng)

    def user(self, history: Ragged) -> Tensor:
        return self.model.user(self.params, History.of(history), self.rng, False)

    def all_items(self, u_CD: Tensor) -> Tensor:
        """[C, I]"""
        score_CI = self.model.score(self.params, u_CD, self.params["items"])
        if self.tuned is None or not len(self.tuned.values):
            return score_CI
        width = int(self.tuned.items.lengths.max())
        own_CRD = self.tuned.items.like(self.tuned.values).padded(width)
        v_CRD = rows(self.params["items"], self.tuned.items.padded(width)) + own_CRD
        mine_CR = self.model.score(self.params, u_CD, v_CRD)
        score_CI = score_CI.clone()
        score_CI[self.tuned.items.owner, self.tuned.items.values] = mine_CR[self.tuned.items.mask(width)]
        return score_CI

    def some_items(self, u_CD: Tensor, items_CL: Tensor) -> Tensor:
        """[C, L], without scoring the rest of the catalogue."""
        v_CLD = rows(self.params["items"], items_CL)
        if self.tuned is not None and len(self.tuned.values):
            v_CLD = _overlay(v_CLD, items_CL, self.tuned)
        return self.model.score(self.params, u_CD, v_CLD)


def _overlay(v_CLD: Tensor, items_CL: Tensor, tuned: Rows) -> Tensor:
    keys = tuned.items.owner * tuned.height + tuned.items.values  # ascending: rows are sorted per client
    want = items_CL + torch.arange(len(items_CL), device=items_CL.device)[:, None] * tuned.height
    at = torch.searchsorted(keys, want).clamp(max=len(keys) - 1)
    return torch.where((keys[at] == want)[..., None], v_CLD + tuned.values[at], v_CLD)


@torch.no_grad()
def measure(ranker: Ranker, train: Ragged, held: HeldOut, config: EvaluateConfig) -> Fields:
    """Metrics per client, keys such as "test/ndcg@20", [C] each; NaN where nothing is held out."""
    out: Fields = {}
    known = train
    for part, relevant in (("valid", held.valid), ("test", held.test)):
        if part not in held.parts:
            continue
        u_CD = ranker.user(known)
        if config.candidates == "sampled":
            items_CL = with_held(relevant, held.candidates[part])
            scores = evaluate_scores(ranker.some_items(u_CD, items_CL), relevant, known, config)
        else:
            scores = evaluate_scores(ranker.all_items(u_CD), relevant, known, config)
        out |= {f"{part}/{k}": v for k, v in scores.items()}
        known = merged(train, held.valid) if len(held.valid.values) else train
    return out
