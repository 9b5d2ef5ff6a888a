"""What attacks have in common: the step that they poison, and checks of what they need."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from covey.contract.attack import Attack as Attack
from covey.contract.attack import AttackView as AttackView
from covey.contract.attack import Informed as Informed
from covey.contract.attack import Profiled as Profiled
from covey.core import CoveyError, FieldDict, Ragged, Upload


class TrainingAttack(ABC):
    """Base of attacks that replace what is uploaded after training; other answers stay honest."""

    name: str
    knowledge: str = ""

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        return self.craft(view, upload) if view.step == "train" else ({}, upload)

    @abstractmethod
    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        """Returns what the attackers remember, and what they upload in place of `upload`."""


def checked_targets(view: AttackView, name: str, targets: Sequence[int]) -> Tensor:
    """The targets of the attack `name`, distinct and ascending, [K]."""
    n_items = view.catalogue.n_items
    if not targets or not 0 <= min(targets) <= max(targets) < n_items:
        raise CoveyError(f"{name}: targets = {list(targets)}; name items from 0 to {n_items - 1}")
    return torch.tensor(sorted(set(targets)), device=view.ids_C.device)


def need_user_vectors(view: AttackView, name: str) -> None:
    """Refuses a model unless its user vector alone is private and its item table is shared."""
    if view.model.kept != ("user",) or "items" not in view.model.shared:
        wrong = f"{name} imitates private user vectors, which this model does not have"
        raise CoveyError(f"{wrong}; use MF or NCF")


def popularity(view: AttackView, name: str) -> Tensor:
    """The popularity of each item, [I], for attacks that know it."""
    if view.catalogue.popularity_I is None:
        wrong = f"{name} needs to know how popular items are, which is unknown here"
        raise CoveyError(f"{wrong}; use another attack")
    return view.catalogue.popularity_I.to(view.ids_C.device)


def equal_lists(values_CL: Tensor) -> Ragged:
    """One list for each client, all of the same length."""
    C, L = values_CL.shape
    return Ragged(values_CL.flatten(), torch.arange(C + 1, device=values_CL.device) * L)
