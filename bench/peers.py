"""iALS and EASE of Covey beside those of `implicit` and LensKit: make peers

One split of MovieLens-100K (synthetic data of that size without COVEY_DATA), the settings of
`peer_models`, three seeds of the initial vectors. All rankings hide the training and validation
items. They are measured by Covey, and the same lists by ir_measures and LensKit too. `--quick` has
little data and writes nothing.
"""

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("LK_NUM_THREADS", "1")
os.environ.setdefault("LK_NUM_BACKEND_THREADS", "1")

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import commit, config_of, machine, say, source_of, write
from covey.core.ragged import Ragged
from covey.data.split import Split
from covey.evaluate.metrics import EvaluateConfig
from covey.pooled.common import evaluate_pooled
from covey.pooled.ease import Ease
from covey.pooled.ials import Ials
from covey.run.assemble import prepare
from peer_models import (
    Array,
    Mapped,
    covey_scores,
    implicit_scores,
    lenskit_ease_scores,
    lenskit_scores,
    matrix,
    start_of,
)
from render_peers import peers as rendered

IALS, WEIGHT = Ials(), 300.0  # Covey's defaults
MANY = 128  # sweeps, after which initial vectors matter little
K, SEEDS = 20, (0, 1, 2)
SMALL = ("data.name=synthetic", "data.users=60", "data.items=80", "data.mean_items=20")
Values, Row, Fit = dict[str, Array], dict[str, Any], Callable[..., Array]


@dataclass(frozen=True)
class Given:
    """Scores of all users for all items, as a fitted model."""

    score_NI: Tensor

    def score(self, users_C: Tensor) -> Tensor:
        return self.score_NI[users_C]

    def score_items(self, users_C: Tensor, items_CL: Tensor) -> Tensor:
        return self.score(users_C).gather(1, items_CL)

    def items(self) -> Tensor:
        return self.score_NI.T


def rows_of(held: Ragged) -> list[Array]:
    return np.split(held.values.numpy(), held.offsets[1:-1].numpy())


def by_covey(scores: Array, split: Split) -> Values:
    asked = EvaluateConfig(metrics=(f"ndcg@{K}", f"recall@{K}"))
    found = evaluate_pooled(Given(torch.from_numpy(scores)), split, asked, parts=("test",))["test"]
    return {name: found[f"{name}@{K}"].numpy() for name in ("ndcg", "recall")}


def by_ir_measures(lists_NK: Array, held: Ragged) -> Values:
    import ir_measures as ir

    qrels = {
        str(u): {str(i): 1 for i in row.tolist()} for u, row in enumerate(rows_of(held)) if len(row)
    }
    run = {
        str(u): {str(i): float(K - k) for k, i in enumerate(row)} for u, row in enumerate(lists_NK)
    }
    found = {"ndcg": np.full(len(held), np.nan), "recall": np.full(len(held), np.nan)}
    names = {ir.nDCG @ K: "ndcg", ir.R @ K: "recall"}
    for value in ir.iter_calc(list(names), qrels, run):
        found[names[value.measure]][int(value.query_id)] = value.value
    return found


def by_lenskit(lists_NK: Array, held: Ragged, as_covey: bool) -> Values:
    """By LensKit's own definitions, or by its code with those of Covey."""
    from lenskit.data import ItemList
    from lenskit.metrics import NDCG, Recall
    from lenskit.metrics.ranking import LogRankWeight

    ndcg, recall = NDCG(K, weight=LogRankWeight(offset=int(as_covey))), Recall(K)
    found: dict[str, list[float]] = {"ndcg": [], "recall": []}
    for list_K, row in zip(lists_NK, rows_of(held)):
        test, shown = ItemList(item_ids=row), ItemList(item_ids=list_K, ordered=True)
        found["ndcg"].append(ndcg.measure_list(shown, test) if len(row) else np.nan)
        share = min(K, len(row)) / max(len(row), 1) if as_covey else 1.0
        found["recall"].append(recall.measure_list(shown, test) * share if len(row) else np.nan)
    return {name: np.array(values) for name, values in found.items()}


@dataclass
class Peers:
    """One split, and the rows of the table."""

    split: Split
    seeds: tuple[int, ...] = SEEDS

    def __post_init__(self) -> None:
        self.x = matrix(self.split.train, self.split.n_items)
        self.rows: list[Row] = []
        self.metrics_apart = 0.0  # the most that the metric of a user differs between libraries

    def row(self, about: Row, fit: Callable[[int], Array], beside: Sequence[Array] = ()) -> None:
        """Fits with every seed, and compares the scores with those `beside` if there are any."""
        keys = ("ndcg", "recall", "lenskit ndcg", "lenskit recall", "cpu seconds", "scores apart")
        made: Row = about | {key: [] for key in keys}
        for seed in self.seeds[: len(beside) or None]:
            before = time.process_time()
            scores = np.ascontiguousarray(fit(seed))
            made["cpu seconds"].append(time.process_time() - before)
            self.measure(scores, made)
            if beside:  # as many as there are seeds to fit with
                gap = abs(scores - beside[seed]).max() / abs(beside[seed]).max()
                made["scores apart"].append(float(gap))
        self.rows.append(made)
        say(f"{about}: NDCG@{K} {made['ndcg']}, scores apart {made['scores apart']}")

    def measure(self, scores: Array, made: Row) -> None:
        mine, lists_NK, held = by_covey(scores, self.split), self.lists(scores), self.split.test
        theirs = by_lenskit(lists_NK, held, as_covey=False)
        others = by_ir_measures(lists_NK, held), by_lenskit(lists_NK, held, as_covey=True)
        for name, value_N in mine.items():
            made[name].append(float(np.nanmean(value_N)))
            made[f"lenskit {name}"].append(float(np.nanmean(theirs[name])))
            gaps = (float(np.nanmax(abs(value_N - other[name]))) for other in others)
            self.metrics_apart = max(self.metrics_apart, *gaps)

    def lists(self, scores: Array) -> Array:
        """The best items of each user that the user does not have, [N, K]."""
        shown = scores.copy()
        for part in (self.split.train, self.split.valid):
            shown[part.owner.numpy(), part.values.numpy()] = -np.inf
        return np.argsort(-shown, axis=1, kind="stable")[:, :K]

    def ials(self, options: Ials, many: int) -> None:
        """From Covey's initial vectors and from each library's own; these with `many` sweeps too.

        The last rows have one regularisation for all, which is what the libraries offer.
        """
        train, n, square = self.split.train, self.split.n_items, Mapped(options).longer ** 2
        start = [start_of(options, n, seed) for seed in self.seeds]
        ours = [covey_scores(train, n, options, seed) for seed in self.seeds]
        longer = replace(options, sweeps=many)

        def fits(of: Ials, own: bool, frequency: bool, covey: bool = False) -> None:
            model = "iALS, regularised by frequency" if frequency else "iALS, one regularisation"
            about: Row = {"model": model, "sweeps": of.sweeps, "start": "own" if own else "covey"}
            if covey:
                mine = partial(covey_scores, train, n, of)
                self.row(about | {"library": "covey"}, mine, () if own else ours)
            for name, fit in (("implicit", implicit_scores), ("lenskit", lenskit_scores)):

                def theirs(seed: int, fit: Fit = fit) -> Array:
                    given = None if own else start[seed]
                    return fit(self.x, of, seed, given, frequency) / square

                self.row(about | {"library": name}, theirs, () if own else ours)

        fits(options, own=False, frequency=True, covey=True)
        fits(options, own=True, frequency=True)
        fits(longer, own=True, frequency=True, covey=True)
        fits(options, own=False, frequency=False)

    def ease(self, weight: float) -> None:
        train = self.split.train

        def ours(_: int) -> Array:
            users_N = torch.arange(len(train))
            return Ease(weight).fit(train, self.split.n_items).score(users_N).numpy()

        def theirs(_: int) -> Array:
            return lenskit_ease_scores(self.x, weight)

        beside = [ours(0)]
        self.row({"model": "EASE", "library": "covey"}, ours, beside)
        self.row({"model": "EASE", "library": "lenskit"}, theirs, beside)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--quick", action="store_true", help="little data; nothing is written")
    quick = ask.parse_args().quick
    torch.set_num_threads(1)
    config = config_of("ials", "ratio-full", *(SMALL if quick else source_of("ml-100k")))
    split, about = prepare(config).split, machine()
    peers, to = Peers(split), Mapped(IALS)
    peers.ials(IALS, 2 * IALS.sweeps if quick else MANY)
    peers.ease(WEIGHT)
    say(f"a user's metrics by three libraries differ by {peers.metrics_apart:.1e} at most")
    found = {
        "commit": commit(),
        "machine": about,
        "versions": {name: version(name) for name in ("implicit", "lenskit", "ir_measures")},
        "data": config.data.name,
        "users": split.n_users,
        "items": split.n_items,
        "training pairs": len(split.train.values),
        "settings": {"dim": IALS.dim, "unseen": to.unseen, "decay": IALS.decay}
        | {"weight": to.weight, "alpha": 1 + to.weight, "ease": WEIGHT}
        | {"one regularisation": to.constant(peers.x)},
        "metrics apart": peers.metrics_apart,
        "rows": peers.rows,
    }
    print("\n".join(rendered(found)))
    if not quick:
        write("bench-peers", found)


if __name__ == "__main__":
    main()
