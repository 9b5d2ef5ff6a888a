"""FedeRank (Anelli et al., User Controlled Feedback with Federated Recommender Systems, ECIR 2021).

Pairwise matrix factorisation: BPR gradients are summed by the server. A user decides which share
of the updates of positive items leaves the device; updates of negatives, which do not name a liked
item, always do. The model is `MF(bias=True)`, the objective `Bpr(reduction="sum")`, and the combine
`Sum`. Shape suffix: T = rows or positives of all clients together.
"""

from dataclasses import dataclass, replace

import torch

from covey.core import CoveyError, Rows, Upload
from covey.evaluate.ranking import distinct
from covey.mechanism import ClientView, Mechanism


@dataclass(frozen=True)
class FeedbackShare(Mechanism):
    """Uploads the row of each positive item with a probability; a coin is thrown in every round."""

    share: float = 1.0  # pi
    name: str = "feedback share"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            valid = "it is a share, from 0 (no row of a positive is sent) to 1 (all of them)"
            raise CoveyError(f"{self.name}: share = {self.share}; {valid}")

    def implements(self, hook: str) -> bool:
        return super().implements(hook) and (hook != "protect_upload" or self.share < 1)

    def protect_upload(self, view: ClientView, upload: Upload) -> Upload:
        if self.share == 1:
            return upload
        if not set(view.model.tables) <= set(view.model.shared):
            wrong = f"{self.name} holds back rows of a shared item table, and this one is private"
            raise CoveyError(f"{wrong}: use keep_items = false")
        liked = distinct(view.data.items)
        held_T = view.rng.fold("coins").ragged_uniform(liked.lengths).values >= self.share
        hidden = liked.keep(held_T)
        update = dict(upload.update)
        for name, x in update.items():
            if isinstance(x, Rows):
                key_T, hidden_T = (r.owner * x.height + r.values for r in (x.items, hidden))
                update[name] = x.kept(~torch.isin(key_T, hidden_T))
        return replace(upload, update=update)
