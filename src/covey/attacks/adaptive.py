"""An attacker that knows the defence, and pushes as far as the server's rule allows.

Against clipping, its rows are as long as the rule allows. Against rules that compare uploads, all
attackers send the same row, so that they are each other's nearest neighbours. Against rules on
whole uploads, it sends the honest rows of a made-up list beside the targets.
Shape suffixes: S = imagined users, K = targets.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.views import TrainingData
from covey.core import CoveyError, FieldDict, Ragged, Rng, Rows, Upload, positive

from .base import AttackView, TrainingAttack, checked_targets, equal_lists, need_user_vectors
from .crafting import promoted
from .profiles import random_list


@dataclass(frozen=True)
class Adaptive(TrainingAttack):
    """A-ra's gradients, as long as the rule accepts: rows of the targets, and the shared layers."""

    targets: tuple[int, ...] = (0,)
    # The norm of a row that the rule accepts; 0: `multiple` times the median of the honest rows.
    bound: float = 0.0
    multiple: float = 2.0
    items: int = 30  # length of the made-up list, which is trained on honestly
    users: int = 10  # imagined
    scale: float = 0.1  # standard deviation of imagined users
    name: str = "adaptive"
    knowledge: str = "the server's rule and its bound"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items, users=self.users, multiple=self.multiple)
        if not self.bound >= 0:
            raise CoveyError(f"{self.name}: bound = {self.bound}; it is a norm, or 0 to guess it")

    def profile(self, view: AttackView) -> TrainingData:
        return random_list(view, self.items, checked_targets(view, self.name, self.targets))

    def craft(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        need_user_vectors(view, self.name)
        target_K, many = checked_targets(view, self.name, self.targets), len(view.ids_C)
        honest, items = upload.update["items"], equal_lists(target_K.expand(many, -1))
        assert isinstance(honest, Rows)
        # Imagined users are equal for all attackers of a round, so that their rows agree.
        table_ID = view.download.public.shared["items"]
        rng = Rng.server(0, view.round, self.name).to(table_ID.device)
        draw_SD = rng.normal(self.users, table_ID.shape[1], dtype=table_ID.dtype)[0]
        u_CSD = (self.scale * draw_SD).expand(many, -1, -1)
        made = promoted(view, upload, items, u_CSD, 1.0).update
        rows = made.pop("items")
        length_T = self.length(honest).repeat_interleave(items.lengths)
        norms = {k: self.multiple * _norm(upload.update[k]) for k in made}
        update: FieldDict = {k: _with_norm(g, norms[k]) for k, g in made.items()}
        long = replace(rows, values=_with_norm(rows.values, length_T))
        return {}, replace(upload, update=update | {"items": _merged(long, honest)})

    def length(self, honest: Rows) -> Tensor:
        """The norm of a target's row, [C]."""
        norm_T = honest.values.norm(dim=1)
        if self.bound:
            return norm_T.new_full((len(honest),), self.bound)
        width = max(int(honest.items.lengths.max()), 1)
        norm_CR = honest.items.like(norm_T).padded(width, torch.nan)
        return self.multiple * norm_CR.nanmedian(1).values.nan_to_num(0)


def _norm(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1)


def _with_norm(x: Tensor, norm: Tensor) -> Tensor:
    return x * (norm / _norm(x).clamp(min=1e-12)).view(-1, *[1] * (x.dim() - 1))


def _merged(made: Rows, honest: Rows) -> Rows:
    """The rows of both, ascending for each client; made-up rows replace honest ones."""
    made_T = made.items.owner * made.height + made.items.values
    key_T = honest.items.owner * made.height + honest.items.values
    keep_T = ~torch.isin(key_T, made_T)
    keys, order = torch.cat([made_T, key_T[keep_T]]).sort()
    values = torch.cat([made.values, honest.values[keep_T]])[order]
    return Rows(Ragged.of_keys(keys, made.height, len(made)), values, made.height)
