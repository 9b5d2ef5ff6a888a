"""Adds items to a dataset after training: their rows come last, and the split is kept.

Shape suffix: E = interactions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.data.dataset import TRAIN, Array, Dataset, check
from covey.data.naming import own_ids
from covey.data.split import SplitConfig, assigned
from covey.data.split import split as split_rows
from covey.run.assemble import Prepared, prepare_split
from covey.run.config.schema import Config

Numbers = tuple[dict[str, int], dict[str, int]]  # of users and of items, by the text of their ids


@dataclass(frozen=True)
class CatalogueGrowth:
    """A dataset with new items.

    Args:
        config: The configuration of a run on the larger dataset.
        prepared: The larger dataset and its split.
        before: The number of items before.
        titled: Whether the new items have titles.
    """

    config: Config
    prepared: Prepared
    before: int
    titled: bool

    @property
    def count_M(self) -> Tensor:
        """The number of users that have each new item."""
        train = self.prepared.split.train.values
        return torch.bincount(train, minlength=self.prepared.split.n_items)[self.before :]

    def check_known(self, known_M: Tensor) -> None:
        """Refuses new items of which nothing is known."""
        if not bool(known_M.all()):
            own = own_ids(self.prepared.dataset)[self.before + int((~known_M).nonzero()[0])]
            remedy = "give interactions with it, or a title that shares words with others"
            raise CoveyError(f"nothing is known of item {str(own)!r}; {remedy}")


def grow_catalogue(
    config: Config,
    prepared: Prepared,
    numbers: Numbers,
    items: Iterable[Any],
    interactions: Iterable[tuple[Any, Any]],
) -> CatalogueGrowth:
    """Adds items to the dataset of a run.

    Args:
        config: The configuration of the run.
        prepared: Its dataset and split.
        numbers: The numbers of its users and items by the text of their ids.
        items: Ids of the new items, or a dictionary from ids to titles.
        interactions: Pairs of a user's id and a new item's id, oldest first.
    """
    if isinstance(items, str):
        raise CoveyError("new items are a list of ids, or {id: title}")
    titles = dict(items) if isinstance(items, Mapping) else dict.fromkeys(items, "")
    new = {str(own): prepared.dataset.n_items + at for at, own in enumerate(titles)}
    if not new:
        raise CoveyError("name at least one new item")
    if known := [own for own in new if own in numbers[1]]:
        raise CoveyError(f"item {known[0]!r} is there already; leave it out")
    pairs = dict.fromkeys(_pair(user, item, numbers[0], new) for user, item in interactions)
    rows = assigned(prepared.dataset, config.split)
    dataset = _with_items(rows, list(titles), list(titles.values()), list(pairs))
    kept = SplitConfig("given", rows="given")
    tree = config.tree | {"split": {"kind": kept.kind, "rows": kept.rows}}
    config = Config.of(tree, config.trust)
    made = prepare_split(config, dataset, split_rows(dataset, kept))
    return CatalogueGrowth(config, made, prepared.dataset.n_items, any(titles.values()))


def _pair(
    user: Any, item: Any, users: Mapping[str, int], new: Mapping[str, int]
) -> tuple[int, int]:
    if str(user) not in users:
        why = "interactions are pairs of a user of the dataset and an item"
        raise CoveyError(f"there is no user {str(user)!r}; {why}")
    if str(item) not in new:
        why = "interactions are with those alone"
        raise CoveyError(f"item {str(item)!r} is not one of the new items; {why}")
    return users[str(user)], new[str(item)]


def _with_items(
    rows: Dataset, own: list[Any], titles: list[str], pairs: list[tuple[int, int]]
) -> Dataset:
    """Adds rows at the end, in the order given and in the part for training."""
    user_E, item_E = np.array(pairs, np.int64).reshape(-1, 2).T
    time_E = rows.time_E
    if time_E is not None:
        time_E = np.r_[time_E, time_E.max() + 1 + np.arange(len(pairs))]
    assert rows.part_E is not None
    before, shown = rows.titles, [title or str(name) for name, title in zip(own, titles)]
    if any(titles) and not before:
        before = tuple(map(str, own_ids(rows).tolist()))
    return check(
        replace(
            rows,
            n_items=rows.n_items + len(own),
            user_E=np.r_[rows.user_E, user_E],
            item_E=np.r_[rows.item_E, item_E],
            time_E=time_E,
            items=_joined(own_ids(rows), own),
            titles=(*before, *shown) if before else (),
            part_E=np.r_[rows.part_E, np.full(len(pairs), TRAIN, np.uint8)],
        )
    )


def _joined(ids: Array, own: list[Any]) -> Array:
    """Joins ids, which stay whole numbers if they are."""
    if ids.dtype.kind not in "iu":
        return np.concatenate([ids, np.array([str(name) for name in own])])
    try:
        return np.concatenate([ids, np.array([int(name) for name in own], ids.dtype)])
    except (ValueError, TypeError, OverflowError) as error:
        message = "the ids of this dataset are whole numbers; give new items such ids"
        raise CoveyError(message) from error
