"""The item map of a run: the public item table in its two main directions, with titles.

Shape suffixes: I = items, S = items shown, D = width of the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from covey.core.errors import CoveyError
from covey.core.trust import Untrusted
from covey.data.naming import ids_of
from covey.run.assemble import Prepared, prepare
from covey.run.checkpoint import MODEL, load_model
from covey.run.config.schema import Config
from covey.study.render.charts import Spot

from .data import Run

MOST_ITEMS = 1500  # on a page; the most popular ones of a larger catalogue


@dataclass(frozen=True)
class ItemMap:
    spots: list[Spot]
    n_items: int
    explained: float  # share of the variance in these two directions
    note: str = ""  # why titles are missing


@dataclass(frozen=True)
class Known:
    """The items of a run."""

    titles: list[str]
    count_I: Tensor  # number of occurrences
    ids: list[str] | None  # as in the data
    note: str = ""  # why the dataset is not available


def map_of(run: Run, most: int = MOST_ITEMS) -> ItemMap | None:
    table_ID = table_in(run.folder)
    if table_ID is None:
        return None
    known = catalogue_of(run, len(table_ID))
    count_I = known.count_I
    shown_S = count_I.argsort(descending=True, stable=True)[:most]
    place_S2, explained = principal(table_ID[shown_S].double())
    radius_S = 1.6 + 4 * (count_I[shown_S] / count_I.max().clamp(min=1)).sqrt()
    rows = zip(place_S2.tolist(), shown_S.tolist(), radius_S.tolist(), strict=True)
    spots = [Spot(x, y, known.titles[i], radius) for (x, y), i, radius in rows]
    return ItemMap(spots, len(table_ID), explained, known.note)


def table_in(folder: Path) -> Tensor | None:
    """Return the public item table of a run, if it has one with two directions."""
    return table_of(load_model(folder / MODEL)) if (folder / MODEL).exists() else None


def table_of(public: Mapping[str, Tensor]) -> Tensor | None:
    table_ID = public.get("items")
    if table_ID is None or table_ID.ndim != 2 or min(table_ID.shape) < 2:
        return None
    return table_ID if bool(table_ID.isfinite().all()) else None


def principal(rows_SD: Tensor) -> tuple[Tensor, float]:
    """Return coordinates [S, 2] of rows in the two directions of most variance, and its share."""
    left_SK, strength_K, _ = torch.linalg.svd(rows_SD - rows_SD.mean(dim=0), full_matrices=False)
    place_S2 = left_SK[:, :2] * strength_K[:2]
    farthest_2 = place_S2.abs().argmax(dim=0, keepdim=True)
    sign_2 = place_S2.gather(0, farthest_2).sign()  # fixes the orientation
    whole = float(strength_K.square().sum())
    return place_S2 * sign_2, float(strength_K[:2].square().sum()) / whole if whole > 0 else 0.0


def catalogue_of(run: Run, n_items: int) -> Known:
    """Return the items of a run; their numbers serve as titles if the dataset is not available."""
    try:
        own = run.folder / "dataset.npz"  # a copy that the folder may have
        data = {"data": {"name": str(own)}} if own.exists() else {}
        prepared = prepare(Config.of(run.config | data))
        if prepared.split.n_items != n_items:
            raise CoveyError("the dataset has changed since the run")
    except Untrusted:
        raise
    except CoveyError as error:
        return Known([f"item {i}" for i in range(n_items)], torch.zeros(n_items), None, str(error))
    count_I = prepared.catalogue.popularity_I
    ids = ids_of(prepared.dataset)
    return Known(titles_of(prepared), torch.zeros(n_items) if count_I is None else count_I, ids)


def titles_of(prepared: Prepared) -> list[str]:
    """Return titles, or else ids of the data, or else numbers."""
    data = prepared.dataset
    return list(data.titles) or [f"item {name}" for name in ids_of(data)]
