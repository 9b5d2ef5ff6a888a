"""Binary cross-entropy for models that compute the user vector from a user's own graph."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from covey.core import CoveyError, Fields, Rng
from covey.mechanism import Batch, History, Model, rows
from covey.models.local_graph import LocalGraph

from .pairs import Bce


@dataclass(frozen=True)
class GraphBce(Bce):
    """As `Bce`, with the client's items as its graph; each is left out where it is scored."""

    sequential: ClassVar[bool] = True

    def prepare(self, batch: Batch) -> Fields:
        """The client's own items, before its other examples; only they have the label 1."""
        own_CL = (batch.label_CL == 1) & (batch.weight_CL > 0)
        order_CL = own_CL.int().argsort(dim=1, descending=True, stable=True)
        index_CL = order_CL if batch.index_CL is None else batch.index_CL.gather(1, order_CL)
        return {"order": order_CL, "sequence": index_CL, "mask": own_CL.gather(1, order_CL)}

    def logits(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        if not isinstance(model, LocalGraph):
            wrong = f"objective: {type(model).__name__} has no graph of the user's items"
            raise CoveyError(
                f"{wrong}; use covey.models.local_graph:LightGCN, or another objective"
            )
        if u is None:
            u = model.user(params, History(ready["sequence"], ready["mask"]), rng, True)
        if u.dim() == 2:
            return super().logits(model, params, batch, ready, rng, u)
        v_CPD = rows(params["items"], ready["sequence"])
        z_CP = model.score(params, u.flatten(0, 1), v_CPD.flatten(0, 1)[:, None]).view(u.shape[:2])
        return torch.zeros_like(z_CP).scatter(1, ready["order"], z_CP)
