"""Pseudo items: a client also uploads rows of items that it does not have (Wu et al., FedGNN, 2021; FedPerGNN, 2022).

The made-up rows have the mean and the deviation of the client's own rows. It hides which items are the client's
among some others. It is no guarantee, and is not counted as one: draws are from the run's seed, which a server may
know, and rows of a linear model still point to one of two sides. Made-up examples that are trained on: see
`methods/virtual.py`.
Shape suffixes: K = pseudo items of a client, T = rows of all clients together.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.contract.ledger import Disclosure
from covey.contract.mechanism import Mechanism
from covey.contract.model import Model
from covey.contract.views import ClientView
from covey.core.errors import CoveyError
from covey.core.messages import Upload
from covey.core.ragged import Ragged, Rows, offsets_of
from covey.core.rng import Rng
from covey.core.sampling import negatives

from .gaussian import simulated


@dataclass(frozen=True)
class PseudoItems(Mechanism):
    """Before `NoisyUploads`, so that made-up rows get noise like the others."""

    count: int = 100  # items of a client
    fixed: bool = True  # the same in every round; drawn anew, those that stay are soon known to be the client's
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
        drawn_CK, exists_CK = negatives(
            view.data.avoid, view.catalogue.n_items, one_C, self.count, rng
        )
        pseudo = Ragged(drawn_CK[exists_CK], offsets_of(exists_CK.sum(1)))
        grown = lambda name, x: _with(x, pseudo, view.rng.fold(name)) if isinstance(x, Rows) else x
        return replace(upload, update={name: grown(name, x) for name, x in upload.update.items()})

    def protected_disclosures(self, disclosed: Disclosure, model: Model) -> tuple[Disclosure, ...]:
        part, _, name = disclosed.name.partition("/")
        if not self.count or part != "update":
            return (disclosed,)
        if name.removesuffix("/touched") in model.tables and name.endswith("/touched"):
            return ()
        if name not in model.tables:
            return (disclosed,)
        what = f"which rows are sent: the client's items and negatives, among those of up to {self.count} pseudo items"
        return disclosed, Disclosure("train", f"{disclosed.name}/touched", what)


def _with(own: Rows, pseudo: Ragged, rng: Rng) -> Rows:
    """The rows and those of pseudo items that are not among them, by item."""
    mine_T, more_T = (x.owner * own.height + x.values for x in (own.items, pseudo))
    fresh = ~torch.isin(more_T, mine_T)
    rows_TE = own.values.flatten(1)
    made_TE = _made_up(own.items, rows_TE, pseudo, rng)[fresh]
    key_T = torch.cat([mine_T, more_T[fresh]])
    order = key_T.argsort()
    values = torch.cat([rows_TE, made_TE])[order].view(-1, *own.values.shape[1:])
    lengths_C = torch.bincount(key_T // own.height, minlength=len(own))
    return Rows(Ragged(key_T[order] % own.height, offsets_of(lengths_C)), values, own.height)


def _made_up(items: Ragged, rows_TE: Tensor, pseudo: Ragged, rng: Rng) -> Tensor:
    """A row for each pseudo item: normal, with mean and deviation of the client's own rows in each column."""
    many_C1 = items.lengths.clamp(min=1)[:, None].to(rows_TE)
    sums = lambda x_TE: x_TE.new_zeros(len(items), x_TE.shape[1]).index_add_(0, items.owner, x_TE)
    mean_CE = sums(rows_TE) / many_C1
    spread_CE = (sums((rows_TE - mean_CE[items.owner]).square()) / many_C1).sqrt()
    z_TE = simulated(rng, 1.0, pseudo.lengths * rows_TE.shape[1], rows_TE.dtype).view(
        -1, rows_TE.shape[1]
    )
    return mean_CE[pseudo.owner] + spread_CE[pseudo.owner] * z_TE
