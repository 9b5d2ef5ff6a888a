"""iALS and EASE by `implicit` and LensKit, with the settings that make them Covey's models.

With a = `Ials.unseen` and l = `Ials.decay`, Covey's normal equations of a user with n of I items,
whose vectors v are summed over the list, are

    (a V'V + sum v v' + l (n + a I) 1) u = sum v.

`implicit` and LensKit weigh all pairs by 1 and a pair in a list by w more, also on the right side.
LensKit's `weight` is w, and `alpha` of `implicit` is 1 + w:

    (V'V + w sum v v' + r 1) u = (1 + w) sum v.

With w = 1 / a, r = l (n + a I) (1 + a) / a and vectors that are sqrt(1 + a) times as long, these
are the same equations, and scores are 1 + a times as large. Both libraries take one r for all users
and items. To regularise by frequency, their solvers are called for rows of equal length.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from covey.core.ragged import Ragged
from covey.pooled import ials as ials_module
from covey.pooled.ials import Ials
from covey.pooled.pairs import table

Array = NDArray[Any]


@dataclass(frozen=True)
class Mapped:
    """The settings of the other libraries that stand for Covey's."""

    options: Ials

    @property
    def unseen(self) -> float:
        assert isinstance(self.options.unseen, float)
        return self.options.unseen

    @property
    def weight(self) -> float:
        """How much more a pair in a list weighs than another pair."""
        return 1 / self.unseen

    @property
    def longer(self) -> float:
        """The length of their vectors over that of Covey's; scores have its square."""
        return math.sqrt(1 + self.unseen)

    def regularisation(self, count: Array | float, others: int) -> Any:
        """Of a vector with `count` pairs, where the other side has `others` vectors."""
        assert isinstance(self.options.decay, float)
        return self.options.decay * (count + self.unseen * others) * (1 + self.unseen) / self.unseen

    def constant(self, x_NI: csr_matrix) -> float:
        """The mean of the regularisation over all users and items."""
        users, items = x_NI.shape
        both = users * self.regularisation(x_NI.nnz / users, items)
        both += items * self.regularisation(x_NI.nnz / items, users)
        return float(both / (users + items))


def matrix(lists: Ragged, n_items: int) -> csr_matrix:
    ones = np.ones(len(lists.values), dtype=np.float32)
    return csr_matrix((ones, lists.values.numpy(), lists.offsets.numpy()), (len(lists), n_items))


def start_of(options: Ials, n_items: int, seed: int = 0) -> Array:
    """Covey's initial item vectors; seed 0 is what `Ials.fit` begins with."""
    return (10 * table(seed, "ials-items", n_items, options.dim, "cpu")).numpy()


def covey_scores(lists: Ragged, n_items: int, options: Ials, seed: int) -> Array:
    def seeded(_: int, *rest: Any) -> torch.Tensor:
        return table(seed, *rest)

    with patch.object(ials_module, "table", seeded):
        fitted = options.fit(lists, n_items)
    return fitted.score(torch.arange(len(lists))).numpy()


def by_count(x: csr_matrix) -> Iterator[tuple[int, Array]]:
    """The rows of each length."""
    count = np.diff(x.indptr)
    for n in np.unique(count):
        yield int(n), np.flatnonzero(count == n)


def implicit_scores(
    x_NI: csr_matrix, options: Ials, seed: int, start: Array | None = None, frequency: bool = True
) -> Array:
    """Scores of all items, [N, I]; `start` are item vectors in place of the library's own."""
    from implicit.cpu.als import AlternatingLeastSquares

    to, (users, items) = Mapped(options), x_NI.shape
    model = AlternatingLeastSquares(
        factors=options.dim,
        alpha=1 + to.weight,
        regularization=to.constant(x_NI),
        iterations=0 if frequency else options.sweeps,
        use_cg=False,  # conjugate gradients, the default, solve approximately
        num_threads=1,
        random_state=seed,
    )
    if start is not None:
        model.item_factors = (start * to.longer).astype(np.float32)
    model.fit(x_NI, show_progress=False)  # with no iterations it draws the initial vectors
    if not frequency:
        user_ND = model.recalculate_user(np.arange(users), x_NI)
        return user_ND @ model.item_factors.T

    def half(x: csr_matrix, others: int, solve: Any) -> None:
        for n, rows in by_count(x):
            model.regularization = float(to.regularisation(n, others))
            solve(rows, x[rows])

    x_IN = x_NI.T.tocsr()
    for _ in range(options.sweeps):
        half(x_NI, items, model.partial_fit_users)
        half(x_IN, users, model.partial_fit_items)
    half(x_NI, items, model.partial_fit_users)  # for the final items, as Covey scores
    return model.user_factors @ model.item_factors.T


def lenskit_data(x_NI: csr_matrix) -> Any:
    """LensKit's dataset; users and items without rows are in it too."""
    import pandas as pd
    from lenskit.data import DatasetBuilder

    made, rows = DatasetBuilder(), x_NI.tocoo()
    made.add_entities("user", np.arange(x_NI.shape[0]))
    made.add_entities("item", np.arange(x_NI.shape[1]))
    pairs = pd.DataFrame({"user_id": rows.row, "item_id": rows.col})
    made.add_interactions("rating", pairs, entities=["user", "item"], default=True)
    return made.build()


def lenskit_scores(
    x_NI: csr_matrix, options: Ials, seed: int, start: Array | None = None, frequency: bool = True
) -> Array:
    """As `implicit_scores`."""
    from lenskit._accel import als
    from lenskit.als import ImplicitMFScorer
    from lenskit.als._implicit import ImplicitMFTrainer
    from lenskit.data.matrix import SparseRowArray
    from lenskit.training import TrainingOptions

    to = Mapped(options)
    weighted = {"user": x_NI * to.weight, "item": x_NI.T.tocsr() * to.weight}

    class Trainer(ImplicitMFTrainer):
        def als_half_epoch(self, epoch: int, context: Any) -> float:
            if not frequency:
                return float(super().als_half_epoch(epoch, context))
            x, right = weighted[context.label].astype(np.float32), context.right
            gram = right.T @ right
            for n, rows in by_count(x):
                r, part = to.regularisation(n, context.ncols), context.left[rows]
                lists, own = SparseRowArray.from_scipy(x[rows]), r * np.eye(options.dim)
                als.train_implicit_matrix(lists, part, right, gram + own.astype(np.float32), None)
                context.left[rows] = part
            return 0.0

    scorer = ImplicitMFScorer(
        embedding_size=options.dim,
        epochs=options.sweeps,
        weight=to.weight,
        regularization=to.constant(x_NI),
    )
    trainer = Trainer(scorer, lenskit_data(x_NI), TrainingOptions(rng=seed))
    if start is not None:
        scorer.item_embeddings[:] = start * to.longer
    for _ in range(options.sweeps):
        trainer.train_epoch()
    trainer.als_half_epoch(options.sweeps, trainer.u_ctx)  # for the final items
    trainer.finalize()
    return scorer.user_embeddings @ scorer.item_embeddings.T


def lenskit_ease_scores(x_NI: csr_matrix, weight: float) -> Array:
    from lenskit.knn import EASEScorer
    from lenskit.training import TrainingOptions

    scorer = EASEScorer(regularization=weight)
    scorer.train(lenskit_data(x_NI), TrainingOptions(device="cpu"))
    return x_NI @ scorer.weights
