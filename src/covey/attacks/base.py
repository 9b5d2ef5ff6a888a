"""Helpers for attacks: checks of what an attack needs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from covey.contract.attack import AttackView
from covey.core.errors import CoveyError


def chosen(view: AttackView, name: str, targets: Sequence[int]) -> Tensor:
    """The targets, ascending, [K]."""
    n_items = view.catalogue.n_items
    if not targets or not 0 <= min(targets) <= max(targets) < n_items:
        raise CoveyError(f"{name}: targets = {list(targets)}; name items from 0 to {n_items - 1}")
    return torch.tensor(sorted(set(targets)), device=view.ids_C.device)


def has_users(view: AttackView, name: str) -> None:
    """For attacks that imagine users: their vectors must be all that is private."""
    if view.model.kept != ("user",) or "items" not in view.model.shared:
        raise CoveyError(
            f"{name} imitates private user vectors, which this model has not; use MF or NCF"
        )


def popularity(view: AttackView, name: str) -> Tensor:
    """[I], for attacks that know it."""
    if view.catalogue.popularity_I is None:
        raise CoveyError(
            f"{name} knows how popular items are, and nobody says so here; use an attack that does not"
        )
    return view.catalogue.popularity_I.to(view.ids_C.device)
