"""The interface between a round and the clients."""

from typing import Protocol

from torch import Tensor

from covey.core.messages import Download, Total, Upload


class Fleet(Protocol):
    """Where the clients are. `ask` is all the server can do to them."""

    @property
    def hides(self) -> frozenset[str]: ...  # steps in which no single answer reaches the server, only sums

    @property
    def ids_N(self) -> Tensor: ...

    def ask(self, step: str, round: int, ids_C: Tensor, download: Download, fold: bool = False) -> Upload | Total: ...
