"""Krum (Blanchard et al., NeurIPS 2017): the one upload that is nearest to its nearest neighbours.

Item rows are judged one item at a time over the clients that touched it, since a whole upload is
mostly zeros; anything else is judged as one flat vector. Further shape suffixes: J = items of a
bucket, n = uploads of each of them, P = numbers of an upload.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import CoveyError, Field, Fields, Ragged, Rows, Total, Upload
from ..mechanism import Combine, Sees

PAIRS_AT_ONCE = 1 << 22  # distances held at once
NUMBERS_AT_ONCE = 1 << 12  # of each upload


@dataclass(frozen=True)
class Krum(Combine):
    """Stands in for a mean; clients' weights count only where it falls back to one.

    `malicious` is the share of attackers that the server assumes among any n uploads: f = floor(share n).
    """

    malicious: float = 0.1
    sees: Sees = "each"

    def __post_init__(self) -> None:
        if not 0 <= self.malicious < 0.5:
            raise CoveyError(f"krum: malicious = {self.malicious}; it protects against a minority, 0 to under 0.5")

    def combine(self, upload: Upload | Total, names: Sequence[str]) -> tuple[Fields, Fields]:
        if isinstance(upload, Total):
            raise CoveyError("Krum compares single uploads, and only their sum is here; use Mean")
        one = lambda part: {k: self._one(v, upload.weight_C) for k, v in part.items() if k in names}
        return one(upload.update), one(upload.model)

    def _one(self, value: Field, weight_C: Tensor) -> Tensor:
        if isinstance(value, Rows):
            return self._each_item(value, weight_C)
        assert isinstance(value, Tensor)
        return self.pick(value.flatten(1)[None], weight_C[None])[0].view(value.shape[1:])

    def _each_item(self, rows: Rows, weight_C: Tensor) -> Tensor:
        """[I, ...]; a row that nobody touched stays where it is."""
        out = rows.values.new_zeros(rows.height, *rows.values.shape[1:])
        flat_TP, weight_T = rows.values.flatten(1), weight_C.repeat_interleave(rows.items.lengths)
        for items_J, at_Jn in by_count(rows.items, rows.height):
            out[items_J] = self.pick(flat_TP[at_Jn], weight_T[at_Jn]).view(-1, *out.shape[1:])
        return out

    def pick(self, g_JnP: Tensor, weight_Jn: Tensor) -> Tensor:
        """[J, P]: the upload with the smallest sum of squared distances to its n - f - 2 nearest others.

        Equal sums: the first. Where no neighbour is left to judge by, the mean is all there is.
        """
        n = g_JnP.shape[1]
        k = n - int(self.malicious * n) - 2
        if k < 1:
            w_Jn1 = weight_Jn[..., None].to(g_JnP)
            return (g_JnP * w_Jn1).sum(1) / w_Jn1.sum(1).clamp(min=1e-12)
        score_Jn = distances(g_JnP).topk(k, dim=-1, largest=False).values.sum(-1)
        return g_JnP[torch.arange(len(g_JnP), device=g_JnP.device), score_Jn.argmin(-1)]


def distances(g_JnP: Tensor) -> Tensor:
    """Squared distances between uploads, infinite to oneself, [J, n, n].

    From inner products, which need double precision: what is left of their difference is small.
    """
    J, n, _ = g_JnP.shape
    dot_Jnn = torch.zeros(J, n, n, dtype=torch.float64, device=g_JnP.device)
    for part_JnB in g_JnP.split(NUMBERS_AT_ONCE, -1):
        part_JnB = part_JnB.double()
        dot_Jnn.baddbmm_(part_JnB, part_JnB.mT)
    norm_Jn = dot_Jnn.diagonal(dim1=1, dim2=2)
    d_Jnn = norm_Jn[:, :, None] + norm_Jn[:, None] - (dot_Jnn + dot_Jnn.mT)  # the same bits both ways
    d_Jnn.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    return d_Jnn.clamp_(min=0)


def by_count(items: Ragged, height: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Items that n clients each touched [J], and where their rows stand in the flat list, client by client [J, n]."""
    order_T = items.values.argsort(stable=True)
    count_I = torch.bincount(items.values, minlength=height)
    first_I = count_I.cumsum(0) - count_I
    for n in count_I[count_I > 0].unique().tolist():
        for items_J in (count_I == n).nonzero()[:, 0].split(max(1, PAIRS_AT_ONCE // (n * n))):
            yield items_J, order_T[first_I[items_J][:, None] + torch.arange(n, device=items_J.device)]
