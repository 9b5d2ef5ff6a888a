"""A client ranks its held-out items with the scores that it would recommend by."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from covey.contract.mechanism import Mechanisms
from covey.contract.model import NO_HISTORY, History, Model, rows
from covey.core import FieldDict, Fields, Ragged, Rng, Rows
from covey.evaluate import ranking
from covey.evaluate.exposure import exposures, target_ranks
from covey.evaluate.metrics import EvaluateConfig, with_held
from covey.evaluate.metrics import measure as figures_of
from covey.evaluate.ranking import Scores, Top, item_range, merged, span
from covey.models.base import catalogue, deep

CPU_SCORES = 3 << 18  # at a time: 3 MB, so that ranking finds them in the cache
SHELF, TOGETHER = 1 << 14, 128  # items of a large catalogue and clients: 8 MB
CUDA_SCORES = 1 << 28


@dataclass(frozen=True)
class HeldOut:
    """The held-out items of clients, for evaluation only."""

    valid: Ragged
    test: Ragged
    candidates: Fields = field(default_factory=dict)  # "valid", "test": [C, K] of a sampled ranking
    parts: tuple[str, ...] = ()  # those that are measured; (): those that are not empty

    def __post_init__(self) -> None:
        found = tuple(k for k in ("valid", "test") if len(getattr(self, k).values))
        object.__setattr__(self, "parts", self.parts or found)

    def take(self, pick: Tensor) -> "HeldOut":
        picked = {k: v[pick] for k, v in self.candidates.items()}
        return HeldOut(self.valid.take(pick), self.test.take(pick), picked, self.parts)

    @staticmethod
    def cat(held: Sequence["HeldOut"]) -> "HeldOut":
        """Joins the items of different clients, in order."""
        names = held[0].candidates
        candidates = {k: torch.cat([part.candidates[k] for part in held]) for k in names}
        valid, test = (Ragged.cat([getattr(h, k) for h in held]) for k in ("valid", "test"))
        return HeldOut(valid, test, candidates, held[0].parts)


@dataclass(frozen=True)
class Ranker:
    """Scores items for a cohort."""

    model: Model
    params: Fields  # with whole tables; the leading dimension is 1 if shared
    tuned: Rows | None  # each client's own update of some item rows, which is added
    rng: Rng
    base: "Ranker | None" = None  # its scores are added; its user vectors follow the model's own

    @classmethod
    def of(
        cls, model: Model, params: Fields, kept: FieldDict, rng: Rng, mechanisms: Mechanisms = ()
    ) -> "Ranker":
        """The ranker of clients that keep `kept`, with the base that a mechanism may give."""
        tuned = kept.get("tuned/items")
        found = [b for m in mechanisms if (b := m.base_model(params)) is not None]
        base = cls(*found[0], None, rng) if found else None
        if not isinstance(tuned, Rows):
            return cls(model, params, None, rng, base)
        share = prod(m.tuned_share() for m in mechanisms)
        return cls(model, params, replace(tuned, values=tuned.values * share), rng, base)

    def span(self, start: int, stop: int) -> "Ranker":
        """The clients from `start` to before `stop`."""
        mine = {k: v if len(v) == 1 else v[start:stop] for k, v in self.params.items()}
        pick = torch.arange(start, stop, device=self.rng.key_C.device)
        tuned = None if self.tuned is None else self.tuned.take(pick)
        base = None if self.base is None else self.base.span(start, stop)
        rng = Rng(self.rng.key_C[start:stop], self.rng.home_C[start:stop])
        return Ranker(self.model, mine, tuned, rng, base)

    def user(self, history: Ragged) -> Tensor:
        """User vectors from the items that each client knows, [C, D]."""
        listed = History.of(history) if self.model.sequential else NO_HISTORY
        u_CD = self.model.user(self.params, listed, self.rng, False)
        return u_CD if self.base is None else torch.cat([u_CD, self.base.user(history)], 1)

    def _parts(self, u_CE: Tensor) -> tuple["Ranker", Tensor, "Ranker", Tensor]:
        assert self.base is not None
        wide = u_CE.shape[1] - self.base.params["items"].shape[2]
        return replace(self, base=None), u_CE[:, :wide], self.base, u_CE[:, wide:]

    def shelves(self) -> list[tuple[int, int]]:
        """Parts of a large catalogue to score one after the other.

        With a shelf's scores in the cache, enough clients fit to fill a matrix product. The
        catalogue is one shelf if it is small, or if its parts would be computed differently.
        """
        table, n_items = self.params["items"], self.params["items"].shape[1]
        shared = len(table) == 1 and self.tuned is None and not deep(self.model)
        split = table.device.type == "cpu" and shared and n_items >= 2 * SHELF
        wide = SHELF if split else n_items
        return [(first, min(first + wide, n_items)) for first in range(0, n_items, wide)]

    def all_items(self, u_CD: Tensor, first: int = 0, last: int | None = None) -> Tensor:
        """Scores of all items, [C, I], or of those on a shelf."""
        if self.base is not None:
            own, own_CD, base, base_CD = self._parts(u_CD)
            return own.all_items(own_CD, first, last) + base.all_items(base_CD, first, last)
        score_CI = catalogue(self.model, self.params, u_CD, first, last)
        if self.tuned is None or not len(self.tuned.values):
            return score_CI
        width = int(self.tuned.items.lengths.max())
        own_CRD = self.tuned.items.like(self.tuned.values).padded(width)
        v_CRD = rows(self.params["items"], self.tuned.items.padded(width)) + own_CRD
        mine_CR = self.model.score(self.params, u_CD, v_CRD)
        score_CI, items = score_CI.clone(), self.tuned.items
        score_CI[items.owner, items.values] = mine_CR[items.mask(width)]
        return score_CI

    def some_items(self, u_CD: Tensor, items_CL: Tensor) -> Tensor:
        """Scores of some items, [C, L], without those of the rest of the catalogue."""
        if self.base is not None:
            own, own_CD, base, base_CD = self._parts(u_CD)
            return own.some_items(own_CD, items_CL) + base.some_items(base_CD, items_CL)
        v_CLD = rows(self.params["items"], items_CL)
        if self.tuned is not None and len(self.tuned.values):
            v_CLD = _overlay(v_CLD, items_CL, self.tuned)
        return self.model.score(self.params, u_CD, v_CLD)


def _overlay(v_CLD: Tensor, items_CL: Tensor, tuned: Rows) -> Tensor:
    """Adds the clients' own updates to rows of the table."""
    keys = tuned.items.owner * tuned.height + tuned.items.values  # ascending
    want = items_CL + torch.arange(len(items_CL), device=items_CL.device)[:, None] * tuned.height
    at = torch.searchsorted(keys, want).clamp(max=len(keys) - 1)
    return torch.where((keys[at] == want)[..., None], v_CLD + tuned.values[at], v_CLD)


@dataclass(frozen=True)
class HeldOutPart:
    """The validation or the test items."""

    part: str
    u_CD: Tensor  # the vectors that rank
    held: Ragged  # the items to find, distinct
    known: Ragged  # the items not to rank

    def span(self, start: int, stop: int) -> "HeldOutPart":
        held, known = span(self.held, start, stop), span(self.known, start, stop)
        return HeldOutPart(self.part, self.u_CD[start:stop], held, known)

    def like(self, other: "HeldOutPart") -> bool:
        """Whether the same vectors rank both parts, in the same memory."""
        return self.u_CD.data_ptr() == other.u_CD.data_ptr()


Parts = list[HeldOutPart]


@torch.no_grad()
def measure(ranker: Ranker, train: Ragged, held: HeldOut, config: EvaluateConfig) -> Fields:
    """Metrics per client, keys such as "test/ndcg@20", [C] each; NaN where nothing is held out."""
    parts, known = [], train
    for name, relevant in (("valid", held.valid), ("test", held.test)):
        if name in held.parts:
            u_CD = ranker.user(known if config.history == "known" else train)
            parts.append(HeldOutPart(name, u_CD, ranking.distinct(relevant), known))
            known = merged(train, held.valid)
    rank = _sampled if config.candidates == "sampled" else _full
    out: Fields = {}
    for part, ranks in zip(parts, rank(ranker, parts, held, config), strict=True):
        figures = figures_of(ranks, part.held.lengths, config)
        out |= {f"{part.part}/{k}": v for k, v in figures.items()}
    if config.targets:
        out |= _exposed(ranker, train, held, config)
    return out


def _exposed(ranker: Ranker, train: Ragged, held: HeldOut, config: EvaluateConfig) -> Fields:
    """Exposure of attack targets to clients without them, with known items left out."""
    known, ranks = merged(train, held.valid), []
    u_CD = ranker.user(known if config.history == "known" else train)
    for start, stop in _spans(ranker, len(held.test)):
        score_CI = ranker.span(start, stop).all_items(u_CD[start:stop])
        ranks.append(target_ranks(score_CI, span(known, start, stop), config.targets))
    return exposures(torch.cat(ranks), merged(known, held.test), config.targets)


def _spans(ranker: Ranker, many: int, shelves: int = 1) -> Iterator[tuple[int, int]]:
    """A few clients at a time, so that their scores stay in the cache."""
    device, n_items = ranker.params["items"].device, ranker.params["items"].shape[1]
    cache = max((CPU_SCORES if device.type == "cpu" else CUDA_SCORES) // n_items, 1)
    cache = cache if shelves == 1 else TOGETHER
    return ((start, min(start + cache, many)) for start in range(0, many, cache))


def _sampled(ranker: Ranker, parts: Parts, held: HeldOut, config: EvaluateConfig) -> list[Ragged]:
    ranks = []
    for part in parts:
        items_CL = with_held(part.held, held.candidates[part.part])
        rank_C = ranking.ranks_sampled(ranker.some_items(part.u_CD, items_CL))
        ranks.append(part.held.like(rank_C[part.held.lengths > 0]))
    return ranks


def _full(ranker: Ranker, parts: Parts, held: HeldOut, config: EvaluateConfig) -> list[Ragged]:
    ranking.keep_heap()
    tops: list[list[Top]] = [[] for _ in parts]
    for start, stop in _spans(ranker, len(held.test), len(ranker.shelves())):
        here = ranker.span(start, stop)
        for e, top in enumerate(_tops(here, [x.span(start, stop) for x in parts], config)):
            tops[e].append(top)
    pairs = zip(map(Top.cat, tops), parts, strict=True)
    return [ranking.ranks_of(top, part.held) for top, part in pairs]


def _tops(ranker: Ranker, parts: Parts, config: EvaluateConfig) -> list[Top]:
    """The best scores in each part, shelf by shelf."""
    tops: list[list[Top]] = [[] for _ in parts]
    mine: list[list[Tensor]] = [[] for _ in parts]
    n_items = ranker.params["items"].shape[1]
    for first, last in ranker.shelves():
        scores = None
        for e, part in enumerate(parts):
            if scores is None or not part.like(parts[e - 1]):  # else the same scores serve again
                scores = Scores(ranker.all_items(part.u_CD, first, last))
            held, mine_T = item_range(part.held, first, last, n_items)
            none = ranking.nothing(len(held), mine_T.device)
            hidden = part.known if config.seen == "filtered" else none
            final = e + 1 == len(parts) or not part.like(parts[e + 1])
            hidden = item_range(hidden, first, last, n_items)[0]
            tops[e].append(scores.top(held, hidden, config.cutoffs[-1], final))
            mine[e].append(mine_T)
    return [Top.joined(shelves, places) for shelves, places in zip(tops, mine, strict=True)]
