"""An attacker that knows the defence: it pushes as far as the server's rule lets it, and no further.

Against clipping its rows are as long as the rule allows. Against rules that compare uploads all attackers
send the same row, so that they are each other's nearest neighbours. Against rules on whole uploads it sends
the honest rows of a made-up list beside the targets. S = imagined users, K = targets.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from covey.contract.attack import AttackView
from covey.contract.views import TrainingData
from covey.core.checks import positive
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import FieldDict, Fields, Ragged, Rows, offsets_of
from covey.core.rng import Rng

from .base import chosen, has_users
from .crafting import alike, one_step, ratings
from .profiles import random_list


@dataclass(frozen=True)
class Adaptive:
    """Gradients of A-ra's kind as long as the rule lets pass: the targets' rows, and the layers against honest ones."""

    targets: tuple[int, ...] = (0,)
    bound: float = 0.0  # norm of a row that passes; 0: `multiple` times the median of the attacker's honest rows
    multiple: float = 2.0
    items: int = 30  # of the list that is trained on honestly
    users: int = 10  # imagined
    scale: float = 0.1  # standard deviation of imagined users
    name: str = "adaptive"
    knowledge: str = "the server's rule and its bound"

    def __post_init__(self) -> None:
        positive(self.name, items=self.items, users=self.users, multiple=self.multiple)
        if not self.bound >= 0:
            raise CoveyError(f"{self.name}: bound = {self.bound}; it is a norm, or 0 to guess it")

    def profile(self, view: AttackView) -> TrainingData:
        target_K = chosen(view, self.name, self.targets)
        return random_list(view, self.items, target_K)

    def poison(self, view: AttackView, upload: Upload) -> tuple[FieldDict, Upload]:
        if view.step != "train":
            return {}, upload
        has_users(view, "the adaptive attacker")
        target_K, many = chosen(view, self.name, self.targets), len(view.ids_C)
        honest = upload.update["items"]
        assert isinstance(honest, Rows)
        u_SD = self._users(view)

        def loss(leaves: Fields) -> Tensor:
            return F.softplus(-ratings(view, leaves, u_SD.expand(many, -1, -1))).mean((1, 2))

        made = one_step(view, upload, alike(target_K, many), loss, 1.0).update
        rows = made.pop("items")
        long_T = self.length(honest).repeat_interleave(rows.items.lengths)
        update: FieldDict = {
            k: _as_long(g, self.multiple * _norm(upload.update[k])) for k, g in made.items()
        }
        update["items"] = _joined(replace(rows, values=_as_long(rows.values, long_T)), honest)
        return {}, replace(upload, update=update)

    def length(self, honest: Rows) -> Tensor:
        """How long a target's row may be, [C]."""
        norm_T = honest.values.norm(dim=1)
        if self.bound:
            return norm_T.new_full((len(honest),), self.bound)
        some = honest.items.like(norm_T).padded(max(int(honest.items.lengths.max()), 1), torch.nan)
        return self.multiple * some.nanmedian(1).values.nan_to_num(0)

    def _users(self, view: AttackView) -> Tensor:
        """The same imagined users for all attackers of a round, so that they send the same row, [S, D]."""
        table_ID = view.download.public.shared["items"]
        rng = Rng.server(0, view.round, self.name).to(table_ID.device)
        return self.scale * rng.normal(self.users, table_ID.shape[1], dtype=table_ID.dtype)[0]


def _norm(x: Tensor) -> Tensor:
    """Of each client's part, [C]."""
    return x.flatten(1).norm(dim=1)


def _as_long(x: Tensor, norm: Tensor) -> Tensor:
    """The same directions with given norms."""
    return x * (norm / _norm(x).clamp(min=1e-12)).view(-1, *[1] * (x.dim() - 1))


def _joined(made: Rows, honest: Rows) -> Rows:
    """Rows of both, ascending for each client; those made up take the place of honest ones."""
    own_T = made.items.owner * made.height + made.items.values
    key_T = honest.items.owner * made.height + honest.items.values
    keep_T = ~torch.isin(key_T, own_T)
    keys, order = torch.cat([own_T, key_T[keep_T]]).sort()
    values = torch.cat([made.values, honest.values[keep_T]])[order]
    owner = keys // made.height
    lengths = torch.bincount(owner, minlength=len(made))
    return Rows(Ragged(keys - owner * made.height, offsets_of(lengths)), values, made.height)
