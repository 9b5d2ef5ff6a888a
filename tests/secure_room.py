"""Secure sums in one process, for tests: parties, a coordinator, and a faulty transport."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from covey.engine.secure import messages
from covey.engine.secure.coordinator import Coordinator, Outcome
from covey.engine.secure.fixed_point import Fixed, OutOfRange
from covey.engine.secure.party import Party, Refused
from covey.engine.secure.settings import FleetConfig

Fault = Callable[[int, int, bytes], Iterable[bytes]]  # phase, client, reply -> what arrives instead
CONTEXT = messages.context_of(7, 1, "train")


@dataclass
class Room:
    values: dict[int, np.ndarray]  # what each client wants to add
    config: FleetConfig = field(
        default_factory=lambda: FleetConfig(secure=True, neighbours=4, holders=8)
    )
    gone: dict[int, int] = field(
        default_factory=dict
    )  # client -> the first phase that it no longer answers
    fault: Fault = lambda phase, client, reply: [reply]
    asked: list[tuple[int, int]] = field(
        default_factory=list
    )  # phase, client: in the order of requests

    def __post_init__(self) -> None:
        self.fixed = Fixed(self.config.bits, self.config.range, len(self.values))
        self.parties = {
            c: Party(c, CONTEXT, self.config, lambda _, value=value: self.fixed.encode(value))
            for c, value in self.values.items()
        }
        length = len(next(iter(self.values.values())))
        self.server = Coordinator(
            list(self.values), CONTEXT, self.config, length, self.fixed.dtype, self.exchange
        )

    def exchange(self, requests: dict[int, bytes]) -> Iterator[bytes]:
        for client, request in requests.items():
            phase = messages.unframe(request, CONTEXT)[0]
            self.asked.append((phase, client))
            if self.gone.get(client, 9) > phase:
                with suppress(Refused, OutOfRange):
                    yield from self.fault(phase, client, self.parties[client].handle(request))

    def run(self) -> tuple[Outcome, np.ndarray]:
        outcome = self.server.run()
        return outcome, self.fixed.decode(outcome.total, len(outcome.ids))

    def sum_of(self, ids: Iterable[int]) -> np.ndarray:
        return sum(self.values[c] for c in ids)


def values(n: int, length: int = 5, start: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(n)
    return {start + 3 * c: rng.uniform(-2, 2, length) for c in range(n)}
