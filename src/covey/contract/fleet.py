"""The interface through which a round reaches the clients."""

from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor

from covey.core import Answers, Download, Scales


@dataclass(frozen=True)
class Request:
    """What the server asks of clients in one exchange."""

    step: str  # what the clients do: "enrol", "deliver", "report", "train" or "evaluate"
    round: int  # the number of the round; 0 is the enrolment
    ids_C: Tensor  # the clients that are asked, [C]
    download: Download = field(default_factory=Download)  # what goes to them, in this order
    fold: bool = False  # whether the sum of the answers is enough; the reply is then a `Total`
    attempt: int = 0  # counts repetitions of a request whose answers were lost
    scales: Scales | None = None  # ranges of the answers, for sums; the fleet fills this in

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

    def ask(self, request: Request) -> Answers:
        """The answers, in the order asked, without the clients that did not answer."""
