"""The interface of objectives: the examples that a client makes of its list, and its loss."""

from typing import Protocol

from torch import Tensor

from covey.contract.examples import Batch, Examples
from covey.contract.model import Model
from covey.core import Fields, Ragged, Rng


class Objective(Protocol):
    """What a client learns: the examples that it makes of its list of items, and a loss.

    An objective inherits this class, gives `examples` and `loss`, and overrides those of the four
    flags that differ from their defaults. All flags are False by default.
    """

    @property
    def pointwise(self) -> bool:
        """Whether examples of one item may be merged, and examples divided into mini-batches."""
        return False

    @property
    def sequential(self) -> bool:
        """Whether the model computes user vectors from the client's list."""
        return False

    @property
    def whole_table(self) -> bool:
        """Whether its loss moves every item row, so that clients train whole tables."""
        return False

    @property
    def light(self) -> bool:
        """Whether most examples only name a row of the table, and cost a quarter of others."""
        return False

    def examples(self, items: Ragged, avoid: Ragged, n_items: int, rng: Rng) -> Examples:
        """The examples that a cohort makes of the training `items` of each client, oldest first.

        `avoid` are items that are not drawn as negatives, sorted and distinct, and `n_items` is the
        size of the catalogue; `rng` has one stream per client.
        """
        ...

    def prepare(self, batch: Batch) -> Fields:
        """Tensors of a block that do not change during local training, [C, ...]."""
        return {}

    def begin(self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng) -> Fields:
        """What is computed once from the received parameters, [C, ...]; it is added to `ready`.

        The arguments are those of `loss`. `view.user()` of a mechanism returns "user", if given.
        """
        return {}

    def loss(
        self, model: Model, params: Fields, batch: Batch, ready: Fields, rng: Rng, u: Tensor | None
    ) -> Tensor:
        """The loss of each client, [C].

        Args:
            model: Scores items for user vectors.
            params: The model's parameters, [C or 1, ...] each; of item tables the rows of `batch`.
            batch: The examples of this step.
            ready: What `prepare` returned for the block.
            rng: One stream per client, a new one in each step where the model is stochastic.
            u: User vectors that replace the model's own, where a mechanism asks for it.
        """
        ...
