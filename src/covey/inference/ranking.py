"""Ranks items for users, by the dataset's own ids.

Shape suffixes: C = users of a chunk, I = items, K = places of a list, T = pairs.
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from covey.core import CoveyError, Ragged, positive
from covey.data.dataset import Array, own_ids
from covey.data.split import SplitConfig
from covey.data.split import split as split_rows
from covey.evaluate.ranking import merged
from covey.models.ease import ItemWeights
from covey.pooled.ease import FittedEase
from covey.run.assemble import Prepared
from covey.run.config.schema import Config

from .scorers import DeviceScorer, PooledScorer, Scorer
from .writing import Choice

NUMBERS_AT_ONCE = 1 << 24  # in memory; about 64 for each item that is scored


@dataclass(frozen=True, eq=False)
class Ranking:
    """Lists and scores; `Recommender` has the same fields and explains the arguments."""

    config: Config
    prepared: Prepared
    scorer: Scorer

    @cached_property
    def users(self) -> list[Any]:
        return list(own_ids(self.prepared.dataset, "users").tolist())

    @cached_property
    def items(self) -> list[Any]:
        return list(own_ids(self.prepared.dataset).tolist())

    @cached_property
    def numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        """Numbers by the text of an id: 7 and "7" are the same user, "07" is another."""
        users = {str(own): number for number, own in enumerate(self.users)}
        return users, {str(own): number for number, own in enumerate(self.items)}

    @cached_property
    def known(self) -> Ragged:
        """All items of each user including held-out ones, oldest first."""
        config, split = self.config.split, self.prepared.split
        if config.kind != "loo" or config.order != "time":
            split = split_rows(self.prepared.dataset, SplitConfig(rows=config.rows))
        return merged(merged(split.train, split.valid), split.test)

    def lists(
        self, users: Any, k: int, filter_seen: bool, as_tested: bool = False, **only: Any
    ) -> Iterator[tuple[Any, list[Choice]]]:
        """The lists of some users or of all; a list is computed when it is asked for."""
        positive("recommend", k=k)
        hidden_I, ids = self.hidden(**only), self._user_numbers(users)
        split = self.prepared.split
        known = merged(split.train, split.valid) if as_tested else self.known

        def of(ids_C: Tensor, score_CI: Tensor) -> Iterator[tuple[Any, list[Choice]]]:
            lists = self.best(score_CI, known.take(ids_C) if filter_seen else None, hidden_I, k)
            return zip((self.users[user] for user in ids_C.tolist()), lists, strict=True)

        once = _tensor(dict.fromkeys(ids.tolist()))
        return (pair for chunk in self._scores(once, known) for pair in of(*chunk))

    def pairs(self, users: Any, items: Any) -> Array:
        user_T, item_T = self._user_numbers(users), _tensor(map(self.item, _several(items)))
        T = max(len(user_T), len(item_T))
        if not {len(user_T), len(item_T)} <= {1, T}:
            why = f"{len(user_T)} users and {len(item_T)} items"
            raise CoveyError(f"predict: {why}; give pairs, or one user, or one item")
        ids, place_T = user_T.expand(T).unique(return_inverse=True)
        item_T, out_T, at = item_T.expand(T), torch.empty(T), 0
        for ids_C, score_CI in self._scores(ids, self.known):
            mine_T = (place_T >= at) & (place_T < at + len(ids_C))
            out_T[mine_T] = score_CI[place_T[mine_T] - at, item_T[mine_T]].float().cpu()
            at += len(ids_C)
        return out_T.numpy()

    def similar(self, item: Any, k: int) -> list[Choice]:
        """The most similar items: by the cosine of their rows, or by EASE's weights."""
        positive("similar_items", k=k)
        number, scorer, table_ID = self.item(item), self.scorer, torch.empty(0, 0)
        if isinstance(scorer, PooledScorer):
            table_ID, linear = scorer.fitted.items(), isinstance(scorer.fitted, FittedEase)
        elif isinstance(scorer, DeviceScorer):
            public, model = scorer.server.public, scorer.clients.program.model
            if linear := isinstance(model, ItemWeights):
                table_ID = public["weight"]
            elif "items" in (*model.shared, *model.uploaded):  # else each device has its own
                # The filter is the gain of a direction, half of it for each of the two items.
                gain_D = public.get("filter", public["items"].new_ones(1)).clamp(min=0)
                table_ID = public["items"] * gain_D.sqrt()
        if table_ID.shape[1] < 2:
            why = "this method has no vector of each item that all clients share"
            raise CoveyError(f"similar_items: {why}; use one such as spectral, ease-sums or fedmf")
        row_D = table_ID[number]
        score_I = row_D if linear else torch.cosine_similarity(table_ID, row_D, dim=1)
        return self.best(score_I[None], Ragged.of([[number]]), self.hidden(), k)[0]

    def hidden(self, candidates: Any = None, exclude: Any = ()) -> Tensor:
        """Which items are in no list [I]."""
        hidden_I = torch.full((self.prepared.split.n_items,), candidates is not None)
        if candidates is not None:
            hidden_I[_tensor(self.known_items(candidates, "candidates"))] = False
        hidden_I[_tensor(self.known_items(exclude, "excluded items", 0))] = True
        return hidden_I

    def best(
        self, score_CI: Tensor, seen: Ragged | None, hidden_I: Tensor, k: int
    ) -> list[list[Choice]]:
        """The best items of each user, without impossible scores, seen and hidden items."""
        score_CI = score_CI.float().cpu()
        score_CI = torch.where(score_CI.isnan() | hidden_I, -torch.inf, score_CI)
        if seen is not None:
            score_CI[seen.owner, seen.values] = -torch.inf
        best_CK, item_CK = score_CI.topk(min(k, score_CI.shape[1]), 1)
        items, titles = self.items, self.prepared.dataset.titles or [""] * len(hidden_I)
        pairs = (zip(row, scores) for row, scores in zip(item_CK.tolist(), best_CK.tolist()))
        return [
            [Choice(items[item], titles[item], score) for item, score in row if score > -torch.inf]
            for row in pairs
        ]

    def item(self, item: Any) -> int:
        if (number := self.numbers[1].get(str(item))) is None:
            remedy = "give items that the run was trained with, or add it with add_items"
            where = self.prepared.dataset.name
            raise CoveyError(f"there is no item {str(item)!r} in {where}; {remedy}")
        return number

    def known_items(self, items: Any, what: str, least: int = 1) -> list[int]:
        """The numbers of those items that there are, at least so many; a warning names others."""
        items = _several(items)
        unknown = [str(item) for item in items if str(item) not in self.numbers[1]]
        if unknown and len(items) - len(unknown) < least:
            self.item(unknown[0])
        if unknown:
            some = f"{', '.join(map(repr, unknown[:3]))}{' ...' if len(unknown) > 3 else ''}"
            many = f"{len(unknown)} of {len(items)} {what} are not in the dataset"
            warnings.warn(f"{many} and were left out: {some}", stacklevel=4)
        return [self.numbers[1][str(item)] for item in items if str(item) in self.numbers[1]]

    def _user_numbers(self, users: Any) -> Tensor:
        if users is None:
            return torch.arange(self.prepared.split.n_users)
        for user in (users := _several(users)):
            if str(user) not in self.numbers[0]:
                remedy = "a new one gets a list from its own items: recommend_new(items)"
                where = self.prepared.dataset.name
                raise CoveyError(f"there is no user {str(user)!r} in {where}; {remedy}")
        return _tensor(self.numbers[0][str(user)] for user in users)

    def _scores(self, ids: Tensor, known: Ragged) -> Iterator[tuple[Tensor, Tensor]]:
        """Some users at a time with their scores of all items [C, I]."""
        at_once = max(1, NUMBERS_AT_ONCE // (64 * self.prepared.split.n_items))
        for ids_C in ids.split(at_once) if len(ids) else ():
            yield ids_C, self.scorer.scores(ids_C, known.take(ids_C))


def _several(ids: Any) -> list[Any]:
    return [ids] if isinstance(ids, str) or not isinstance(ids, Iterable) else list(ids)


def _tensor(numbers: Iterable[int]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.int64)
