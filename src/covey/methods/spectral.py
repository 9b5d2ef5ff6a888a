"""Subspace iteration by sums over clients (Halko et al., 2011): a few rounds, no training.

With A the interactions divided by the square roots of user and item degrees, a round computes
A'A Q: client u adds a_u (a_u' Q), which touches the rows of its own items only, and the server
orthonormalises the sum. Item degrees travel as one more column.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Drawer, Fields, Ragged, Rows, Total, Upload, offsets_of
from ..ledger import Disclosure
from ..mechanism import ClientView, Mechanism, Sees, ServerView


@dataclass(frozen=True)
class SubspaceIteration(Mechanism):
    name: str = "spectral"
    asks: frozenset[str] = frozenset({"report"})
    hears: Sees = "total"

    def report(self, view: ClientView) -> Drawer:
        items, count_T = distinct(view.data.items, view.catalogue.n_items)
        n_C = view.data.items.lengths.clamp(min=1)
        u_CD = view.user() / n_C[:, None]
        row_CE = torch.cat([u_CD, torch.ones_like(u_CD[:, :1])], 1)  # E = D + 1, the last for the degrees
        row_TE = row_CE.repeat_interleave(items.lengths, 0) * count_T[:, None]
        return {"rows": Rows(items, row_TE, view.catalogue.n_items)}

    def hear(self, view: ServerView, reports: Upload | Total) -> tuple[Drawer, Fields]:
        assert isinstance(reports, Total)
        sum_IE = reports.extra[self.name]["rows"]
        degree_I = sum_IE[:, -1].clamp(min=1)
        basis_ID = torch.linalg.qr(sum_IE[:, :-1] / degree_I.sqrt()[:, None]).Q
        root_I = sum_IE[:, -1].sqrt()  # 0 for an item that nobody has
        return view.memory, {"items": basis_ID * root_I[:, None], "degree": degree_I}

    def discloses(self) -> tuple[Disclosure, ...]:
        what = "the user's vector in the rows of the user's items; in clear it names them, in a secure sum it does not"
        return (Disclosure("report", f"{self.name}/rows", what),)


def distinct(lists: Ragged, n_items: int) -> tuple[Ragged, Tensor]:
    """Each item of a list once, and how often it stood there."""
    key_T, count_T = torch.unique(lists.owner * n_items + lists.values, return_counts=True)
    lengths = torch.bincount(key_T // n_items, minlength=len(lists))
    return Ragged(key_T % n_items, offsets_of(lengths)), count_T
