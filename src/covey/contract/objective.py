"""What a client learns from its list: which examples it makes, and the loss of each client, [C]."""

from typing import Protocol

from torch import Tensor

from covey.contract.examples import Batch, Examples
from covey.contract.model import Model
from covey.core.ragged import Fields, Ragged
from covey.core.rng import Rng


class Objective(Protocol):
    @property
    def pointwise(self) -> bool:
        """Whether examples of one item merge into one, and may be cut into mini-batches."""

    @property
    def sequential(self) -> bool:
        """Whether the model is shown the client's list to compute user vectors from."""

    @property
    def whole_table(self) -> bool:
        """Whether its loss moves every item row, so that clients train whole tables."""

    @property
    def light(self) -> bool:
        """Whether most examples only name a row of the table, and cost a quarter of one."""

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples: ...

    def prepare(self, batch: Batch) -> Fields:
        """Tensors of a block that do not change during local training."""

    def loss(self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None) -> Tensor:
        """[C]; `u` replaces the model's own user vectors where a mechanism asks for it."""
