"""Virtual ratings (Lin et al., FedRec: Federated Recommendation with Explicit Feedback, 2020).

To hide which items a client has, it also trains on other items with made-up ratings. With implicit
feedback these are coin flips, as in CoFedRec's Table 4 (He et al., WWW 2024).
"""

from dataclasses import dataclass

from torch import Tensor

from covey.core import CoveyError, Ragged
from covey.core.sampling import negatives
from covey.mechanism import ClientView, Examples, Mechanism


@dataclass(frozen=True)
class VirtualRatings(Mechanism):
    """Adds made-up examples, `share` times as many as a client has items, each labelled 0 or 1.

    They are drawn in each participation, from the items that the client's negatives come from.
    """

    share: float = 0.2  # rho
    name: str = "virtual ratings"

    def __post_init__(self) -> None:
        if self.share < 0:
            raise CoveyError(f"{self.name}: share = {self.share}; it may not be negative")

    def implements(self, hook: str) -> bool:
        return super().implements(hook) and bool(self.share)

    def augment(self, view: ClientView, examples: Examples) -> Examples:
        if not self.share:
            return examples
        many_C: Tensor = (self.share * view.data.items.lengths).round().long()
        free_C = view.catalogue.n_items - view.data.avoid.lengths
        many_C = many_C.minimum(free_C)
        rng, n_items = view.rng.fold("items"), view.catalogue.n_items
        items_T1, _ = negatives(view.data.avoid, n_items, many_C, 1, rng)
        coin = view.rng.fold("ratings").ragged_uniform(many_C)
        items = Ragged(items_T1[:, 0], coin.offsets)
        return examples.append(items, (coin.values < 0.5).to(examples.label))
