"""Synthetic datasets with groups of taste, for tests, demonstrations and runs at scale.

Items and users belong to groups. The popularity of items falls as a power of their rank in their
group, the activity of users follows a bounded power law, and most items of a user are from its
group. Shape suffixes: N = users, I = items, E = interactions, G = groups.
"""

import itertools
import math
from dataclasses import dataclass
from importlib import resources

import numpy as np

from covey.core.errors import CoveyError

from .dataset import Array, Dataset

CHUNK = 1 << 20  # interactions generated at once; the data depend on it
TASTE_TRIES = 8  # after so many repeated draws, a user takes any item
DAY = 86_400.0
EPOCH = 1_600_000_000.0


@dataclass(frozen=True)
class Synthetic:
    """Options of the generator."""

    users: int = 1000
    items: int = 500
    mean_items: float = 20.0  # interactions of a user
    groups: int = 8
    taste: float = 0.75  # share of a user's items that are from its group
    popularity: float = 0.8  # weight of the item of rank r in its group: r ** -popularity
    seed: int = 0

    def __post_init__(self) -> None:
        most = f"at most a quarter of the {self.items} items, so raise items"
        for name, valid, why in (
            ("users", self.users >= 2, "at least 2 are needed"),
            ("groups", 1 <= self.groups <= self.items, f"choose 1 to items ({self.items})"),
            ("mean_items", self.mean_items >= 2, "at least 2 are needed"),
            ("mean_items", self.mean_items <= self.items / 4, most),
            ("taste", 0 <= self.taste <= 1, "it is a share, 0 to 1"),
            ("popularity", self.popularity >= 0, "it may not be negative"),
            ("seed", self.seed >= 0, "it may not be negative"),
        ):
            if not valid:
                raise CoveyError(f"synthetic data: {name} = {getattr(self, name)}; {why}")


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Items by group, then rank; the cumulated weights serve for draws in a group and in all."""

    edge_G: Array  # [G + 1] places where groups begin
    weight_I: Array  # cumulated

    def draw(self, rng: np.random.Generator, group_E: Array, taste: float) -> Array:
        begin_G = np.r_[0.0, self.weight_I][self.edge_G]
        x_E = rng.random(len(group_E))
        own_E = rng.random(len(group_E)) < taste
        low_E, high_E = begin_G[group_E], begin_G[group_E + 1]
        x_E = np.where(own_E, low_E + x_E * (high_E - low_E), x_E * begin_G[-1])
        place_E: Array = np.searchsorted(self.weight_I, x_E, side="right")
        return place_E.clip(max=len(self.weight_I) - 1)  # a sum may have been rounded up


def generate(options: Synthetic) -> Dataset:
    """The dataset of these options; the same options give the same dataset."""
    rng = np.random.default_rng([options.seed, 0])
    edge_G = np.linspace(0, options.items, options.groups + 1).astype(np.int64)
    rank_I = np.arange(options.items) - np.repeat(edge_G[:-1], np.diff(edge_G)) + 1
    ranking = _Ranking(edge_G, np.cumsum(rank_I**-options.popularity))
    item_of_place = rng.permutation(options.items).astype(np.int32)
    n_N = _activity(options, rng)
    user_E = np.repeat(np.arange(options.users, dtype=np.int32), n_N)
    item_E, time_E = np.empty(len(user_E), np.int32), np.empty(len(user_E))
    edges = [0, *(np.flatnonzero(np.diff(np.cumsum(n_N) // CHUNK)) + 1).tolist(), len(n_N)]
    for number, (first, last) in enumerate(itertools.pairwise(edges)):
        part_rng = np.random.default_rng([options.seed, 1, number])
        rows = slice(int(n_N[:first].sum()), int(n_N[:last].sum()))
        item_E[rows] = item_of_place[_items(options, ranking, part_rng, n_N[first:last])]
        time_E[rows] = _times(part_rng, n_N[first:last])
    columns, titles = (user_E, item_E, time_E), _titles(edge_G, item_of_place)
    return Dataset("synthetic", options.users, options.items, *columns, titles=titles, clock=True)


def _activity(options: Synthetic, rng: np.random.Generator) -> Array:
    """The number of items of each user: evenly spaced quantiles, so the mean is right for a few."""
    low, high = max(1.0, options.mean_items / 4), min(options.items / 2, options.mean_items * 20)
    exponent, steep = 0.0, 40.0  # of the density x ** -exponent with this mean, by bisection
    for _ in range(50):
        middle = (exponent + steep) / 2
        sample = _quantiles(middle, low, high, min(options.users, 1 << 16))
        too_large = sample.mean() > options.mean_items
        exponent, steep = (middle, steep) if too_large else (exponent, middle)
    exponent = (exponent + steep) / 2
    sum_N = np.cumsum(_quantiles(exponent, low, high, options.users))
    total_N = np.floor(sum_N + 0.5)  # sums are rounded, so that the mean stays the same
    return rng.permutation(np.maximum(np.diff(total_N, prepend=0.0), 1).astype(np.int64))


def _quantiles(exponent: float, low: float, high: float, points: int) -> Array:
    q = (np.arange(points) + 0.5) / points
    b = 1 - exponent
    if abs(b) < 1e-9:
        return low * (high / low) ** q
    return np.asarray(low * (1 + q * ((high / low) ** b - 1)) ** (1 / b))


def _items(options: Synthetic, ranking: _Ranking, rng: np.random.Generator, n_N: Array) -> Array:
    """Places in the ranking, distinct for each user: repeated ones are drawn again."""
    group_N = rng.integers(options.groups, size=len(n_N))
    user_E = np.repeat(np.arange(len(n_N)), n_N)
    place_E = ranking.draw(rng, group_N[user_E], options.taste)
    rows = np.arange(len(user_E))
    for tries in itertools.count():
        key_E = user_E[rows] * options.items + place_E[rows]
        order = np.argsort(key_E, kind="stable")
        again = rows[order[1:][key_E[order][1:] == key_E[order][:-1]]]
        if not len(again):
            return place_E
        if tries < TASTE_TRIES:
            place_E[again] = ranking.draw(rng, group_N[user_E[again]], options.taste)
        else:
            place_E[again] = rng.integers(options.items, size=len(again))
        busy_N = np.zeros(len(n_N), bool)
        busy_N[user_E[again]] = True
        rows = rows[busy_N[user_E[rows]]]
    raise AssertionError("unreachable")


def _times(rng: np.random.Generator, n_N: Array) -> Array:
    """Whole seconds, rising for each user, within a year at first and with gaps of 1.5 days."""
    gap_E = 1 + np.floor(rng.exponential(1.5 * DAY, int(n_N.sum())))
    start_N = EPOCH + np.floor(rng.random(len(n_N)) * 365 * DAY)
    passed_E = np.cumsum(gap_E)
    return np.asarray(np.repeat(start_N - passed_E[np.cumsum(n_N) - n_N], n_N) + passed_E)


def _titles(edge_G: Array, item_of_place: Array) -> tuple[str, ...]:
    """Readable names from the words of each group, with numbers after all names were used once."""
    titles = [""] * len(item_of_place)
    # Adjectives and nouns take turns, group by group.
    themes = resources.files(__package__).joinpath("titles.txt").read_text("utf-8").splitlines()
    size = math.ceil(len(item_of_place) / (len(edge_G) - 1))
    for g, (first, last) in enumerate(itertools.pairwise(edge_G.tolist())):
        cycle, theme = divmod(g, len(themes) // 2)
        adjectives, nouns = themes[2 * theme].split(), themes[2 * theme + 1].split()
        names = [f"{adjective} {noun}" for noun in nouns for adjective in adjectives]
        for serial, item in enumerate(item_of_place[first:last].tolist(), size * cycle):
            sequel, name = divmod(serial, len(names))
            titles[item] = names[name] + (f" {sequel + 1}" if sequel else "")
    return tuple(titles)
