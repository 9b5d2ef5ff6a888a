"""Floors and ceilings: models that see everybody's data on one machine, for comparison with the federated ones."""

from .common import FitRequest, Fitted, Selected, evaluate_pooled, fit_selected
from .ease import Ease
from .mf import PooledMF
from .ncf import PooledNCF
from .popularity import Popularity
from .sequence import PooledBERT4Rec, PooledGRU, PooledSASRec

__all__ = [
    "Ease",
    "FitRequest",
    "Fitted",
    "PooledBERT4Rec",
    "PooledGRU",
    "PooledMF",
    "PooledNCF",
    "PooledSASRec",
    "Popularity",
    "Selected",
    "evaluate_pooled",
    "fit_selected",
]
