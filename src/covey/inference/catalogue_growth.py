"""Adds items to a dataset after training: their rows come last, and the split is kept.

Shape suffix: E = interactions.
"""

from collections.abc import Iterable, Mapping, Sequence
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

Owns = Sequence[Any]  # ids of new users or items
Numbers = tuple[dict[str, int], dict[str, int]]  # of users and of items, by the text of their ids


@dataclass(frozen=True)
class CatalogueGrowth:
    """A dataset with new items, and the configuration of a run on it."""

    config: Config
    prepared: Prepared  # the larger dataset and its split
    before: int  # number of items
    titled: bool  # whether the new items have titles

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
    """Adds items to the dataset of a run; `numbers` are those of its users and items by id."""
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
    dataset = _titled(with_rows(rows, list(pairs), items=list(titles)), rows, titles)
    again = prepared_again(config, dataset)
    return CatalogueGrowth(**again, before=rows.n_items, titled=any(titles.values()))


def prepared_again(config: Config, rows: Dataset) -> dict[str, Any]:
    """The configuration and the prepared data of a run on rows that are assigned to parts."""
    kept = SplitConfig("given", rows="given")
    tree = config.tree | {"split": {"kind": kept.kind, "rows": kept.rows}}
    config = Config.of(tree, config.trust)
    made = prepare_split(config, check(rows), split_rows(rows, kept))
    return {"config": config, "prepared": made}


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


def with_rows(
    rows: Dataset,
    pairs: list[tuple[int, int]],
    users: Sequence[Any] = (),
    items: Sequence[Any] = (),
) -> Dataset:
    """Adds users, items and rows at the end; rows in the order given, and in the training part."""
    user_E, item_E = np.array(pairs, np.int64).reshape(-1, 2).T
    made: dict[str, Any] = {"user_E": np.r_[rows.user_E, user_E]}
    made |= {"item_E": np.r_[rows.item_E, item_E]}
    if rows.time_E is not None:
        made["time_E"] = np.r_[rows.time_E, rows.time_E.max() + 1 + np.arange(len(pairs))]
    assert rows.part_E is not None
    made["part_E"] = np.r_[rows.part_E, np.full(len(pairs), TRAIN, np.uint8)]
    for kind, own in (("users", users), ("items", items)):
        count = getattr(rows, f"n_{kind}")
        made |= {
            f"n_{kind}": count + len(own),
            kind: _joined(getattr(rows, kind), count, own, kind),
        }
    return replace(rows, **made)


def _titled(dataset: Dataset, before: Dataset, titles: Mapping[Any, str]) -> Dataset:
    old, new = before.titles, tuple(title or str(own) for own, title in titles.items())
    if any(titles.values()) and not old:
        old = tuple(map(str, own_ids(before).tolist()))
    return replace(dataset, titles=(*old, *new) if old else ())


def _joined(ids: Array | None, count: int, own: Owns, kind: str) -> Array | None:
    """Joins ids, which stay whole numbers if they are."""
    if not own:
        return ids
    if ids is None:
        ids = np.arange(count).astype(np.str_)
    if ids.dtype.kind not in "iu":
        return np.concatenate([ids, np.array([str(name) for name in own])])
    try:
        return np.concatenate([ids, np.array([int(name) for name in own], ids.dtype)])
    except (ValueError, TypeError, OverflowError) as error:
        message = f"the ids of this dataset are whole numbers; give new {kind} such ids"
        raise CoveyError(message) from error
