"""FedRecon (Singhal et al., Federated Reconstruction: Partially Local Federated Learning, 2021).

A client keeps nothing. Whenever it takes part or ranks, it reconstructs its user vector from the
received item table by gradient steps on its own examples. Then it trains the items with the user
vector fixed. `Restart` is the variant of CoFedRec (He et al., 2024): users are kept for some
rounds. Shape suffix: P = examples of a client's whole list.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from covey.core import CoveyError, Fields, Ragged, Rng, Sent, among_choices, offsets_of, positive
from covey.evaluate.ranking import distinct
from covey.mechanism import Batch, ClientView, Examples, Mechanism, Objective, ServerView
from covey.models.base import History, Model, dot, rows
from covey.models.lists import ListModel, by_length, widths
from covey.objectives.pairs import Bce, Bpr

ALL = 1 << 40  # more than the items of any list


@dataclass(frozen=True)
class ReconstructedMF(ListModel):
    """Matrix factorisation whose user vector is reconstructed from a list, so none is kept."""

    dim: int = 32
    scale: float = 0.1  # standard deviation of the item table's start
    steps: int = 10  # of reconstruction
    lr: float = 1.0  # of reconstruction
    start: float = 0.05  # a reconstruction starts uniform between -start and start
    negatives: int = 4  # per item of the list, where a client ranks
    shared: tuple[str, ...] = ("items",)
    tuned: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positive("model", dim=self.dim, steps=self.steps, negatives=self.negatives, lr=self.lr)

    def first(self, rng: Rng) -> Tensor:
        """Where the reconstruction of each client starts, [C, D]."""
        return self.start * (2 * rng.fold("reconstruction").uniform(self.dim) - 1)

    def reconstruct(self, u_CD: Tensor, v_CLD: Tensor, label_CL: Tensor, w_CL: Tensor) -> Tensor:
        """Steps from u_CD along the gradient of the mean cross-entropy, with fixed items."""
        share_CL = w_CL / w_CL.sum(1, keepdim=True).clamp(min=1)
        for _ in range(self.steps):
            error_CL = share_CL * (dot(u_CD, v_CLD).sigmoid() - label_CL)
            u_CD = u_CD - self.lr * (error_CL[..., None] * v_CLD).sum(1)
        return u_CD

    def user(self, params: Fields, history: History, rng: Rng, training: bool) -> Tensor:
        """User vectors from all items of each list and negatives drawn for them."""
        lists = Ragged(history.index_CP[history.mask_CP], offsets_of(history.mask_CP.sum(1)))
        avoid, n_items = distinct(lists), params["items"].shape[1]
        made = Bce(self.negatives).examples(lists, avoid, n_items, rng.fold("support"))
        wide, like = int(widths(made.items.lengths + 1).max()), params["items"]
        own = {"label": made.label, "weight": made.weight}
        own = {k: made.items.like(x.to(like)).padded(wide) for k, x in own.items()}
        own["start"] = self.first(rng).to(like)

        def encode(mine: Fields, examples: History) -> Tensor:
            v_CPD = rows(mine["items"], examples.index_CP)
            label_CP, weight_CP = (mine[k][:, : v_CPD.shape[1]] for k in ("label", "weight"))
            return self.reconstruct(mine["start"], v_CPD, label_CP, weight_CP)

        examples = History.of(made.items)
        return by_length({**params, **own}, examples, ALL, encode, lambda n: 4 * n * self.dim)


@dataclass(frozen=True)
class Reconstruction(Objective):
    """Cross-entropy of the query examples for a user reconstructed from the support examples."""

    negatives: int = 4
    # "half": every second item with its negatives is query, so a client with one item has none and
    # its upload is zero. "none": all examples are both.
    split: Literal["none", "half"] = "half"
    sequential: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive("objective", negatives=self.negatives)
        among_choices("objective", self)

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        """The examples of `Bce`, each with the place of its positive in the list."""
        return Bpr(self.negatives).examples(items, avoid, n_items, rng)

    def prepare(self, batch: Batch) -> Fields:
        assert batch.slot_CL is not None
        if self.split == "none":
            return {"support": batch.weight_CL, "query": batch.weight_CL}
        query_CL = batch.slot_CL % 2 == 1
        return {"support": batch.weight_CL * ~query_CL, "query": batch.weight_CL * query_CL}

    def begin(self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng) -> Fields:
        """The reconstructed users, which stay fixed while the items are trained."""
        if not isinstance(model, ReconstructedMF):
            wrong = f"{type(model).__name__} cannot reconstruct a user"
            raise CoveyError(f"{wrong}; use covey.methods.fedrecon:ReconstructedMF")
        assert batch.index_CL is not None
        with torch.no_grad():
            v_CLD = rows(params["items"], batch.index_CL)
            label_CL, weight_CL = batch.label_CL.to(v_CLD), ready["support"].to(v_CLD)
            start_CD = model.first(rng).to(v_CLD)
            return {"user": model.reconstruct(start_CD, v_CLD, label_CL, weight_CL)}

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        query = replace(batch, weight_CL=ready["query"])
        u = ready["user"] if u is None else u
        return Bce(self.negatives).loss(model, params, query, ready, rng, u)


@dataclass(frozen=True)
class Restart(Mechanism):
    """Participants draw a new user vector in every so many rounds, and keep it between them."""

    every: int = 2
    name: str = "restart"
    needs_private: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        positive(self.name, every=self.every)

    def send(self, view: ServerView) -> Sent:
        """Tells the clients to draw their vectors again; in round 1 they are new anyway."""
        done = view.round.number - 1
        again = view.step == "train" and done > 0 and done % self.every == 0
        return Sent({"again": torch.ones(1)}) if again else Sent()

    def renew(self, view: ClientView) -> Fields:
        if "again" not in view.received.shared:
            return {}
        fresh = view.model.private(view.rng, view.rng)
        return {"user": fresh["user"].to(view.params["user"])}
