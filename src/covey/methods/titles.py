"""Similarities of items: cosines of vectors of their titles, or of the rows of the item table.

Titles become vectors by TF-IDF of words or of pieces of words, cut to 50 dimensions, or by a
pre-trained encoder (an extra). Clients and server compute the same ones from the public catalogue.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from covey.core.errors import CoveyError

Similarity = Literal["words", "characters", "encoder", "items", "itself"]
Bound = Literal["exact", "range", "clipped"]
ROWS = 256  # rows of the similarity that are computed at once
NO_TITLES = (
    "the items have no titles to compare them by; give some (covey data import FILE --items TITLES)"
    " or set similarity = 'itself' (every other item is equally far) or similarity = 'items' (the"
    " item table)"
)


@dataclass(frozen=True)
class Likeness:
    """Item-item similarities, computed a few rows at a time: no matrix [I, I] is held."""

    n_items: int
    vectors_ID: Tensor | None  # unit vectors, float64; None: an item is similar to itself only
    sensitivity: float = 1.0  # a bound of |S_ij - S_i'j| over j, i, i'
    least: float = -1.0  # lower cosines count as this

    def rows(self, items_B: Tensor) -> Tensor:
        """The similarities of some items to all, [B, I], in float64."""
        if self.vectors_ID is None:
            shape, dtype = (len(items_B), self.n_items), torch.float64
            like_BI = torch.zeros(shape, dtype=dtype, device=items_B.device)
        else:
            v_ID = self.vectors_ID.to(items_B.device)
            like_BI = (v_ID[items_B] @ v_ID.mT).clamp_(self.least, 1)
        return like_BI.scatter_(1, items_B[:, None], 1.0)

    def bounded(self, bound: Bound) -> "Likeness":
        """The similarities with the sensitivity by which the exponential mechanism divides."""
        if bound == "clipped":
            return replace(self, sensitivity=1.0, least=0.0)
        if self.vectors_ID is None or bound == "range":
            return replace(self, sensitivity=1.0 if self.vectors_ID is None else 2.0)
        # S_jj is 1, so over a public catalogue it is 1 - min S.
        blocks = torch.arange(self.n_items, device=self.vectors_ID.device).split(ROWS)
        lowest = min((float(self.rows(items_B).min()) for items_B in blocks), default=0.0)
        return replace(self, sensitivity=1 - lowest if lowest < 1 else 1.0)


@lru_cache(maxsize=4)
def likeness(
    titles: tuple[str, ...], n_items: int, by: Similarity = "words", bound: Bound = "exact"
) -> Likeness:
    """The similarities of items by their titles; `by` = "itself" needs none."""
    if by == "itself":
        return Likeness(n_items, None).bounded(bound)
    if not any(re.search(r"\w", title) for title in titles):
        raise CoveyError(NO_TITLES)
    if len(titles) != n_items:
        wrong = f"the catalogue has {len(titles)} titles for {n_items} items"
        raise CoveyError(f"{wrong}; give one for each or none")
    return Likeness(n_items, title_vectors(titles, by=by)).bounded(bound)


def table_likeness(v_ID: Tensor, bound: Bound = "exact") -> Likeness:
    """The similarities by a public item table; the paper rejects it: at first it is random."""
    return Likeness(len(v_ID), F.normalize(v_ID.detach().double(), dim=1)).bounded(bound)


def title_vectors(titles: tuple[str, ...], dim: int = 50, by: Similarity = "words") -> Tensor:
    """The unit vectors of titles, [I, D]; zero for a title without words."""
    if by == "encoder":
        from .titles_encoder import encoded  # needs an extra

        return encoded(titles)
    options: dict[str, Any] = {"token_pattern": r"\w+"}
    if by == "characters":
        options = {"analyzer": "char_wb", "ngram_range": (3, 4)}
    counts = TfidfVectorizer(**options).fit_transform(titles)
    dim = min(dim, *counts.shape)
    vectors = TruncatedSVD(dim, random_state=0).fit_transform(counts)
    return F.normalize(torch.from_numpy(vectors).double(), dim=1)
