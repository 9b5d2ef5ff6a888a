"""Item maps: the items of a table in two directions, with popular items and targets marked.

Maps with common directions show what an attack moves and what a defence keeps in place. Maps with
their own directions show how a method spreads its items (Figure 2 of Yuan et al., 2024); `atlas`
draws those of finished runs. Shape suffixes: I = items, H = popular items, D = width of the table.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.core import CoveyError
from covey.core.provenance import commit, machine
from covey.study.render import markup, tables
from covey.study.render.charts import Ranges, Spot, item_map
from covey.study.render.markup import Html, figure, gallery, join, legend, tag
from covey.study.render.units import code, fixed
from covey.study.report.data import read_run, unique_names
from covey.study.report.items import catalogue_of, principal, table_in

from .plan import rows_of, with_names

HOT = 100  # the number of popular items, as in the paper's plot
MOST = 700  # of the other items on a map, evenly by popularity
INSIDE = 0.998  # share of the items, without targets, that determine the frame
Row = tuple[str, Sequence["Map"]]  # an attack, and its maps


@dataclass(frozen=True)
class Items:
    """The items to mark on every map."""

    count_I: Tensor  # how many users have an item
    titles: Sequence[str]
    targets: Sequence[int] = ()
    hot: int = HOT

    def popular(self) -> Tensor:
        return self.count_I.argsort(descending=True, stable=True)[: self.hot]

    def others(self, most: int) -> Tensor:
        """Return at most `most` items without a mark, evenly by popularity."""
        order_I = self.count_I.argsort(descending=True, stable=True)[self.hot :]
        marked = torch.tensor(list(self.targets), dtype=order_I.dtype)
        order_I = order_I[~torch.isin(order_I, marked)]
        if len(order_I) <= most:
            return order_I
        return order_I[torch.linspace(0, len(order_I) - 1, most).long()]


@dataclass(frozen=True)
class Directions:
    """The two directions in which the rows of a table vary most."""

    centre_D: Tensor
    axes_D2: Tensor
    explained: float  # share of the variance in these directions

    @classmethod
    def of(cls, table_ID: Tensor) -> "Directions":
        rows_ID = table_ID.double()
        place_I2, explained = principal(rows_ID)
        centre_D = rows_ID.mean(0)
        lengths_2 = place_I2.square().sum(0).clamp(min=1e-300)
        return cls(centre_D, (rows_ID - centre_D).T @ place_I2 / lengths_2, explained)

    def place(self, table_ID: Tensor) -> Tensor:
        """Return coordinates [I, 2]."""
        return (table_ID.double() - self.centre_D) @ self.axes_D2


@dataclass(frozen=True)
class Map:
    """A table in two directions, with figures on how its rows are spread."""

    name: str
    place_I2: Tensor
    explained: float
    alike_hot: float  # mean cosine between popular items; 1 if all have one direction
    alike_all: float  # mean cosine between any two items
    long_target: float  # mean length of the targets' rows over the median length; may be NaN

    @classmethod
    def of(cls, name: str, table_ID: Tensor, items: Items, at: Directions | None = None) -> "Map":
        """Return the map of a table, in its own directions unless others are given."""
        at = at or Directions.of(table_ID)
        norm_I = table_ID.double().norm(dim=1)
        rows = list(items.targets)
        far = float(norm_I[rows].mean() / norm_I.median()) if rows else math.nan
        alike = alikeness(table_ID[items.popular()]), alikeness(table_ID)
        return cls(name, at.place(table_ID), at.explained, *alike, far)

    def plain(self) -> dict[str, float | str | None]:
        far = None if math.isnan(self.long_target) else self.long_target
        return {
            "name": self.name,
            "explained": self.explained,
            "mean_cosine_popular": self.alike_hot,
            "mean_cosine_all": self.alike_all,
            "target_length": far,
        }


def alikeness(table_ID: Tensor) -> float:
    """Return the mean cosine between two different rows."""
    unit_ID, n = F.normalize(table_ID.double(), dim=1), len(table_ID)
    whole = unit_ID.sum(0).square().sum() - unit_ID.square().sum()
    return float(whole / (n * (n - 1))) if n > 1 else 1.0


def frame(maps: Sequence[Map], items: Items) -> Ranges:
    """Return the horizontal and vertical range of maps in the same directions, without targets."""
    rest_I = torch.ones(len(maps[0].place_I2), dtype=torch.bool)
    rest_I[list(items.targets)] = False
    ends = []
    for axis in (0, 1):
        places = [one.place_I2[rest_I, axis] for one in maps]
        low = min(float(p.quantile(1 - INSIDE)) for p in places)
        high = max(float(p.quantile(INSIDE)) for p in places)
        pad = 0.12 * (high - low) or 1.0
        ends.append((low - pad, high + pad))
    return ends[0], ends[1]


def draw(one: Map, items: Items, within: Ranges, most: int = MOST) -> Html:
    """Draw a map, with popular items and targets on top of the others."""
    kinds = [("item", 2.0, i) for i in items.others(most).tolist()]
    kinds += [("hot", 3.0, i) for i in items.popular().tolist() if i not in items.targets]
    kinds += [("target", 6.5, i) for i in items.targets]
    spots = []
    for kind, radius, item in kinds:
        x, y = one.place_I2[item].tolist()
        title = ("target: " if kind == "target" else "") + items.titles[item]
        spots.append(Spot(x, y, title, radius, kind))
    return item_map(one.name, spots, within)


def key(items: Items) -> Html:
    """Return the legend of the marks."""
    names = [("items", "item"), (f"the {len(items.popular())} most popular", "hot")]
    return legend(names + [("target", "target")] * bool(items.targets))


def row(maps: Sequence[Map], items: Items, within: Ranges | None = None, most: int = MOST) -> Html:
    """Draw maps side by side, each with its own frame unless one is given."""
    shown = []
    for one in maps:
        name = join(one.name, tag("small", caption(one)))
        shown.append(figure(name, draw(one, items, within or frame([one], items), most)))
    return gallery(shown, "maps")


def caption(one: Map) -> str:
    """Return the figures of a map; cosines have two digits, and no sign if they round to 0."""
    hot, every = (fixed(round(alike, 2) + 0.0, 2) for alike in (one.alike_hot, one.alike_all))
    far = ""
    if not math.isnan(one.long_target):
        far = f"; target {one.long_target:.1f} times as long as the median item"
    return f" mean cosine {hot} between popular items, {every} between all{far}"


def atlas(
    folders: Sequence[Path], hot: int, targets: str, axes: Literal["own", "first"]
) -> tuple[list[dict[str, Any]], str]:
    """Draw a map for each run folder; return the figures of each as plain data, and the page.

    The `hot` most popular items are marked, and `targets` as a user names them. Each map has the
    directions of its own table or those of the first.
    """
    runs = [read_run(folder) for folder in folders]
    found = []
    for run in runs:
        if (table_ID := table_in(run.folder)) is None:
            raise CoveyError(f"{run.folder} has no public item table to map; leave it out")
        found.append(table_ID)
    known, name = catalogue_of(runs[0], len(found[0])), runs[0].result["dataset"]["name"]
    n_items = len(known.count_I)
    if any(len(table) != n_items for table in found):
        raise CoveyError("these runs have different items; give runs on one dataset")
    rows = rows_of(targets, known.ids, n_items, name) if targets else ()
    items = Items(known.count_I, with_names(known.titles, known.ids, rows), rows, hot)
    common = None
    if axes == "first":
        if any(table.shape != found[0].shape for table in found):
            raise CoveyError("tables of different width share no directions; use --axes own")
        common = Directions.of(found[0])
    drawn = [Map.of(name, table, items, common) for name, table in zip(unique_names(runs), found)]
    within = frame(drawn, items) if common else None
    where = f"the two directions of {'the first' if common else 'its own'} table"
    what = f"Each map shows items in {where} with most of the variance."
    text = [
        tag("p", f"{what} Point at a dot for its title."),
        tag("p", f"Titles and popularity are missing: {known.note}.") if known.note else None,
    ]
    shown = [*text, key(items), row(drawn, items, within)]
    return [one.plain() for one in drawn], markup.page(f"Item maps on {name}", *shown)


def record(
    folders: Sequence[Path], figures: Sequence[dict[str, Any]], hot: int, targets: str, axes: str
) -> dict[str, Any]:
    """Return the figures of the maps with the configuration of each run; see `atlas`."""
    runs = [read_run(folder) for folder in folders]
    about = [{key: run.result[key] for key in ("seed", "rounds", "config")} for run in runs]
    words = [*(folder.name for folder in folders), f"--hot {hot}"]
    words += [f"--axes {axes}"] if axes != "own" else []
    words += [f"--targets {shlex.quote(targets)}"] if targets else []
    return {
        "format": "covey maps 1",
        "dataset": runs[0].result["dataset"]["name"],
        "hot": hot,
        "maps": [one | other for one, other in zip(figures, about)],
        "command": f"covey maps {' '.join(words)}",
        "commit": commit(),
        "machine": machine("cpu"),
    }


def markdown(made: Mapping[str, Any]) -> str:
    """Return the record as Markdown for the docs."""
    head = [f"items of {made['dataset']}", f"mean cosine of the {made['hot']} most popular"]
    head += ["of all", "two directions hold"]
    rows = []
    for one in made["maps"]:
        cosines = (f"{one[f'mean_cosine_{of}']:.3f}" for of in ("popular", "all"))
        rows.append([one["name"], *cosines, f"{one['explained']:.0%}"])
    where = f"{code(made['command'])}, commit {made['commit']}, {made['machine']}."
    return f"{tables.markdown(head, rows)}\n\n{where}"
