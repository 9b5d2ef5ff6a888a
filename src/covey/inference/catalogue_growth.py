"""A dataset with items added after training: new rows at its end, the split as it was.

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
from covey.run.assemble import Prepared, ready
from covey.run.config.schema import Config

Places = tuple[
    dict[str, int], dict[str, int]
]  # numbers of users and of items by the text of their ids


@dataclass(frozen=True)
class Growth:
    """What a recommender works with once the items are there, and what is known of them."""

    config: Config
    prepared: Prepared
    before: int  # items that there were
    titled: bool  # whether the new items have titles

    @property
    def taken_M(self) -> Tensor:
        """How many have each new item."""
        train = self.prepared.split.train.values
        return torch.bincount(train, minlength=self.prepared.split.n_items)[self.before :]

    def unknown(self, what_M: Tensor) -> CoveyError:
        own = own_ids(self.prepared.dataset)[self.before + int(what_M.nonzero()[0])]
        what = "give interactions with it, or a title that shares words with others"
        return CoveyError(f"nothing is known of item {str(own)!r}; {what}")


def growth_of(
    config: Config,
    prepared: Prepared,
    places: Places,
    items: Iterable[Any],
    interactions: Iterable[tuple[Any, Any]],
) -> Growth:
    if isinstance(items, str):
        raise CoveyError("new items are a list of ids, or {id: title}")
    titles = dict(items) if isinstance(items, Mapping) else dict.fromkeys(items, "")
    new = {str(own): prepared.dataset.n_items + at for at, own in enumerate(titles)}
    if not new or (known := next((own for own in new if own in places[1]), None)) is not None:
        raise CoveyError(
            f"item {known!r} is there already; leave it out"
            if new
            else "name at least one new item"
        )
    pairs = dict.fromkeys((_user(user, places), _new(item, new)) for user, item in interactions)
    dataset = _grown(
        assigned(prepared.dataset, config.split), list(titles), list(titles.values()), list(pairs)
    )
    kept = SplitConfig("given", rows="given")
    config = Config.of(
        config.tree | {"split": {"kind": kept.kind, "rows": kept.rows}}, config.trust
    )
    made = ready(config, dataset, split_rows(dataset, kept))
    return Growth(config, made, prepared.dataset.n_items, any(titles.values()))


def _user(user: Any, places: Places) -> int:
    if (at := places[0].get(str(user))) is None:
        raise CoveyError(
            f"there is no user {str(user)!r}; interactions are pairs of a user of the dataset and an item"
        )
    return at


def _new(item: Any, new: Mapping[str, int]) -> int:
    if (at := new.get(str(item))) is None:
        raise CoveyError(
            f"item {str(item)!r} is not one of the new items; interactions are with those alone"
        )
    return at


def _grown(
    rows: Dataset, own: list[Any], titles: list[str], pairs: list[tuple[int, int]]
) -> Dataset:
    """The new rows come last, in the order given, and train."""
    user_E, item_E = np.array(pairs, np.int64).reshape(-1, 2).T
    time_E = rows.time_E
    if time_E is not None:
        time_E = np.r_[time_E, time_E.max() + 1 + np.arange(len(pairs))]
    assert rows.part_E is not None
    shown = [title or str(name) for name, title in zip(own, titles, strict=True)]
    before = (
        rows.titles or tuple(map(str, own_ids(rows).tolist())) if any(titles) or rows.titles else ()
    )
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
    """Ids stay whole numbers where they are."""
    if ids.dtype.kind not in "iu":
        return np.concatenate([ids, np.array([str(name) for name in own])])
    try:
        return np.concatenate([ids, np.array([int(name) for name in own], ids.dtype)])
    except (ValueError, TypeError, OverflowError) as error:
        raise CoveyError(
            "the ids of this dataset are whole numbers; give new items such ids"
        ) from error
