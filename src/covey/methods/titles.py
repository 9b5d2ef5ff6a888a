"""How alike items are by their titles: TF-IDF of the words, cut to 50 dimensions, cosine.

Without titles an item is like itself only. The exponential mechanism over that similarity is
randomised response over the whole catalogue.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from torch import Tensor

from ..core import CoveyError

ROWS = 256  # rows of the similarity that are computed at once


@dataclass(frozen=True)
class Likeness:
    """Item-item similarities, a few rows at a time: the whole [I, I] matrix is never held."""

    n_items: int
    vectors_ID: Tensor | None  # unit vectors, float64; None: no titles
    sensitivity: float = 1.0  # max over j, i, i' of |S_ij - S_i'j|; S_jj = 1, so it is 1 - min S

    def rows(self, items_B: Tensor) -> Tensor:
        """[B, I] in float64."""
        if self.vectors_ID is None:
            like_BI = torch.zeros(len(items_B), self.n_items, dtype=torch.float64, device=items_B.device)
        else:
            v_ID = self.vectors_ID.to(items_B.device)
            like_BI = (v_ID[items_B] @ v_ID.mT).clamp(-1, 1)
        return like_BI.scatter_(1, items_B[:, None], 1.0)


@lru_cache(maxsize=4)
def likeness(titles: tuple[str, ...], n_items: int) -> Likeness:
    """Everybody computes it from the public catalogue, so clients and server agree on it."""
    if not any(re.search(r"\w", title) for title in titles):
        return Likeness(n_items, None)
    if len(titles) != n_items:
        raise CoveyError(f"the catalogue has {len(titles)} titles for {n_items} items; give one for each, or none")
    made = Likeness(n_items, title_vectors(titles))
    lowest = min(float(made.rows(items_B).min()) for items_B in torch.arange(n_items).split(ROWS))
    return Likeness(n_items, made.vectors_ID, 1 - lowest)


def title_vectors(titles: tuple[str, ...], dim: int = 50) -> Tensor:
    """[I, D] unit vectors; a title without any word is a zero."""
    counts = TfidfVectorizer(token_pattern=r"\w+").fit_transform(titles)
    dim = min(dim, *counts.shape)
    vectors = TruncatedSVD(dim, random_state=0).fit_transform(counts)
    return torch.nn.functional.normalize(torch.from_numpy(vectors).double(), dim=1)
