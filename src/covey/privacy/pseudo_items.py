"""Pseudo items: a client also uploads rows of items that it does not have.

Wu et al., FedGNN, 2021, and FedPerGNN, 2022. The made-up rows have the mean and the deviation of
the client's own rows and hide its items among others. It is no guarantee: draws use the run's seed,
which a server may know, and rows of a linear model still point to one of two sides.
Shape suffixes: K = pseudo items of a client, T = rows of all clients together.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.core import CoveyError, Ragged, Rng, Rows, Upload, offsets_of
from covey.core.sampling import negatives
from covey.mechanism import ClientView, Disclosure, Mechanism, Model

from .gaussian import simulated


@dataclass(frozen=True)
class PseudoItems(Mechanism):
    """Adds rows of pseudo items; it is listed before `NoisyUploads`, which covers them too."""

    count: int = 100  # pseudo items of a client
    fixed: bool = True  # the same in every round; otherwise the items that stay are the client's
    name: str = "pseudo items"

    def __post_init__(self) -> None:
        if self.count < 0:
            raise CoveyError(f"{self.name}: count = {self.count}; at least 0 is needed")

    def implements(self, hook: str) -> bool:
        return super().implements(hook) and (hook != "protect_upload" or bool(self.count))

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        if not self.count:
            return upload
        rng = view.rng.home(self.name) if self.fixed else view.rng.fold("items")
        one_C = torch.ones_like(view.data.avoid.lengths)
        n_items = view.catalogue.n_items
        drawn_CK, exists_CK = negatives(view.data.avoid, n_items, one_C, self.count, rng)
        pseudo = Ragged(drawn_CK[exists_CK], offsets_of(exists_CK.sum(1)))
        update = {
            name: _with(x, pseudo, view.rng.fold(name)) if isinstance(x, Rows) else x
            for name, x in upload.update.items()
        }
        return replace(upload, update=update)

    def protected_disclosures(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        part, _, name = disclosed.name.partition("/")
        if not self.count or part != "update":
            return (disclosed,)
        if name.removesuffix("/touched") in model.tables and name.endswith("/touched"):
            return ()
        if name not in model.tables:
            return (disclosed,)
        what = "which rows are sent: the client's items and negatives, among those of"
        pseudo = f"up to {self.count} pseudo items"
        return disclosed, Disclosure("train", f"{disclosed.name}/touched", f"{what} {pseudo}")


def _with(own: Rows, pseudo: Ragged, rng: Rng) -> Rows:
    """The client's rows and made-up rows of its other pseudo items, ordered by item."""
    mine_T, more_T = (x.owner * own.height + x.values for x in (own.items, pseudo))
    fresh = ~torch.isin(more_T, mine_T)
    rows_TE = own.values.flatten(1)
    made_TE = _made_up(own.items, rows_TE, pseudo, rng)[fresh]
    key_T = torch.cat([mine_T, more_T[fresh]])
    order = key_T.argsort()
    values = torch.cat([rows_TE, made_TE])[order].view(-1, *own.values.shape[1:])
    return Rows(Ragged.of_keys(key_T[order], own.height, len(own)), values, own.height)


def _made_up(items: Ragged, rows_TE: Tensor, pseudo: Ragged, rng: Rng) -> Tensor:
    """A normal row for each pseudo item, with the mean and deviation of the client's columns."""
    owner_T, width = items.owner, rows_TE.shape[1]
    many_C1 = items.lengths.clamp(min=1)[:, None].to(rows_TE)

    def mean(x_TE: Tensor) -> Tensor:
        return x_TE.new_zeros(len(items), width).index_add_(0, owner_T, x_TE) / many_C1

    mean_CE = mean(rows_TE)
    spread_CE = mean((rows_TE - mean_CE[owner_T]).square()).sqrt()
    z_TE = simulated(rng, 1.0, pseudo.lengths * width).view(-1, width).to(rows_TE)
    return mean_CE[pseudo.owner] + spread_CE[pseudo.owner] * z_TE
