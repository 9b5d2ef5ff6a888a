"""The interface through which a round reaches the clients."""

from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from covey.core.fixed_point import Scales
from covey.core.messages import Download, Total, Upload


@dataclass(frozen=True)
class Request:
    """What the server asks of clients in one exchange.

    Args:
        step: What the clients do: "enrol", "deliver", "report", "train" or "evaluate".
        round: The number of the round; 0 is the enrolment.
        ids_C: The clients that are asked, [C].
        download: What goes to them; entries for single clients are in the order of `ids_C`.
        fold: Whether the sum of the answers is enough; the reply is then a `Total`.
        attempt: Counts repetitions of a request whose answers were lost.
        scales: The ranges of the numbers in the answers, from which follows how sums are rounded;
            the fleet fills it in from what the method declares.
    """

    step: str
    round: int
    ids_C: Tensor
    download: Download = field(default_factory=Download)
    fold: bool = False
    attempt: int = 0
    scales: Scales | None = None

    def take(self, pick: Tensor) -> "Request":
        """The same request to some of the clients; `pick` are places in `ids_C`."""
        return replace(self, ids_C=self.ids_C[pick], download=self.download.take(pick))

    def to(self, device: torch.device) -> "Request":
        """The same request with all tensors on a device."""
        return replace(self, ids_C=self.ids_C.to(device), download=self.download.to(device))


class Fleet(Protocol):
    """The clients, wherever they run. The server reaches them through `ask` alone."""

    @property
    def hides(self) -> frozenset[str]:
        """The steps in which only sums of answers reach the server."""

    @property
    def ids_N(self) -> Tensor:
        """The clients that the server knows at present, attackers included, [N]."""

    def ask(self, request: Request) -> Upload | Total:
        """The answers, in the order asked, without the clients that did not answer."""
