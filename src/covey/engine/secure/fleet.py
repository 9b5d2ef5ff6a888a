"""Puts secure sums before another fleet, so that the server reads sums of its answers only."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from covey.contract.fleet import Fleet, Request
from covey.core import Answers, CoveyError, Total, Upload
from covey.core.checks import installed
from covey.engine.fleet.base import Metered
from covey.engine.fleet.meter import Meter

from . import messages
from .coordinator import Coordinator, Outcome
from .fixed_point import Fixed, Floats, Integers, OutOfRange
from .groups import GroupSum, added, drawn, within
from .layout import Layout, nothing, part_of
from .party import Party, Refused
from .settings import SUMMED, FleetConfig, SumFailed

AT_ONCE = 256  # clients whose uploads exist together; their dense vectors exist one by one


class Devices(Fleet, Metered, Protocol):
    """The fleet that computes the answers: simulated, or over a wire."""


class Absent(ValueError):
    """A client has nothing to contribute, or nothing that fits."""


@dataclass
class Contributions:
    """What clients add to the sums of one exchange, computed some clients at a time when needed."""

    devices: Devices
    request: Request
    order_C: Tensor  # places in `request.ids_C`, in the order in which clients are asked
    ready: dict[int, tuple[Upload, int]] = field(default_factory=dict)  # by client: upload, row
    equal: bool = True  # whether all clients so far have the weight 1

    def __post_init__(self) -> None:
        self.waiting = list(self.order_C.split(AT_ONCE))

    def layout(self) -> Layout | None:
        """The layout of the first client that answers; None if none does."""
        while not self.ready and self.waiting:
            self._more()
        return Layout.of(part_of(*next(iter(self.ready.values())))) if self.ready else None

    def take(self, client: int, layout: Layout) -> Floats:
        """A client's vector, or `Absent`."""
        while client not in self.ready and self.waiting:
            self._more()
        if client not in self.ready:
            raise Absent("no answer")  # which the devices counted
        vector = layout.vector(part_of(*self.ready.pop(client)))
        if vector is None:
            self.devices.meter.drop("odd shape")
            raise Absent("odd shape")
        return vector

    def _more(self) -> None:
        """Computes the next clients' uploads. In clear these never leave the devices."""
        some = replace(self.request.take(self.waiting.pop(0)), fold=False)
        meter = self.devices.meter
        with meter.apart() as clear:
            upload = self.devices.ask(some)
        meter.down += clear.down
        assert isinstance(upload, Upload)
        self.equal &= bool((upload.weight_C == 1).all())
        self.ready |= {client: (upload, row) for row, client in enumerate(upload.ids_C.tolist())}


@dataclass
class SecureFleet:
    """A fleet whose reports and uploads are summed by the protocol; other steps pass unchanged."""

    devices: Devices
    config: FleetConfig
    run: int = 0
    summed: dict[str, int] = field(default_factory=dict)  # by step: the last round

    def __post_init__(self) -> None:
        if self.config.masks:
            installed("cryptography", "secure sums", "secure")

    @property
    def hides(self) -> frozenset[str]:
        return self.config.hides

    @property
    def ids_N(self) -> Tensor:
        return self.devices.ids_N

    def ask(self, request: Request) -> Answers:
        """Sums each step of a round once: the difference of two sums may be one contribution."""
        step, round = request.step, request.round
        if step not in SUMMED or step not in self.hides:
            return self.devices.ask(request)
        if not request.fold:
            wrong = f"single {step}s were asked for, which secure sums hide"
            raise CoveyError(f"{wrong}; use a linear combine")
        if self.summed.get(step, -1) >= round:
            wrong = f"the {step}s of round {round} were summed already"
            raise CoveyError(f"{wrong}; a client contributes once")
        self.summed[step] = round
        return self._sum(request.to(self.ids_N.device), self.devices.meter)

    def _sum(self, request: Request, meter: Meter) -> Total:
        """The sum over all groups that did not fail and have no row that is too long."""
        step, round, ids_C = request.step, request.round, request.ids_C
        groups = drawn(ids_C, self.config.group, self.run, round, step)
        contributions = Contributions(self.devices, request, torch.cat(groups))
        layout = contributions.layout()
        if layout is None:
            return nothing(ids_C)
        sums = []
        for number, place_G in enumerate(groups):
            context = messages.context_of(self.run, round, f"{step}/{number}" if number else step)
            try:
                sums.append(self._group(contributions, ids_C[place_G], layout, context))
            except SumFailed:
                meter.drop("secure sum failed", len(place_G))
        fine = within(sums, self.config.longest)
        if out := sum(len(g.ids_C) for g, ok in zip(sums, fine) if not ok):
            meter.drop("in a group with too long a row", out)
        if not any(fine):
            return nothing(ids_C)
        summed_C, total = added([g for g, ok in zip(sums, fine) if ok])
        return layout.total(ids_C[torch.isin(ids_C, summed_C)], total)

    def _group(self, inputs: Contributions, ids_G: Tensor, layout: Layout, name: bytes) -> GroupSum:
        fixed = Fixed(self.config.bits, self.config.range, len(ids_G))
        fixed.check()
        parties = _LocalParties(inputs, layout, fixed, name, self.config)
        run = parties.masked if self.config.masks else parties.plain
        try:
            outcome = run(ids_G.tolist())
        finally:
            parties.count_fields()
        sums = fixed.decode(outcome.total, len(outcome.ids))
        return GroupSum(torch.from_numpy(outcome.ids).to(ids_G.device), sums, layout.longest(sums))


@dataclass
class _LocalParties:
    """All parties of one sum in this process; they exchange bytes only, which are counted."""

    contributions: Contributions
    layout: Layout
    fixed: Fixed
    context: bytes
    config: FleetConfig
    sent: list[int] = field(default_factory=list)  # clients whose vectors have left

    @property
    def meter(self) -> Meter:
        return self.contributions.devices.meter

    def count_fields(self) -> None:
        """Counts the fields of the vectors; a weight of 1 for all clients discloses nothing."""
        for name, many in self.layout.fields().items():
            size = many * self.fixed.dtype.itemsize * len(self.sent)
            if name == "weight" and self.contributions.equal:
                self.meter.up += size
            else:
                step, ids_C = self.contributions.request.step, torch.tensor(self.sent).long()
                self.meter.count(step, name, size, ids_C)

    def contribution(self, client: int) -> Integers:
        """What a client adds, or `Absent`, with the reason counted."""
        try:
            return self.fixed.encode(self.contributions.take(client, self.layout))
        except OutOfRange as error:
            self.meter.drop("out of range")
            raise Absent from error

    def masked(self, ids: list[int]) -> Outcome:
        """The sum by the protocol."""

        def party(client: int) -> Party:
            return Party(client, self.context, self.config, lambda _: self.contribution(client))

        self.parties = {client: party(client) for client in ids}
        length, dtype = self.layout.length, self.fixed.dtype
        server = Coordinator(ids, self.context, self.config, length, dtype, self.exchange)
        try:
            return server.run()
        finally:
            for what, clients in server.flagged.items():
                self.meter.drop(what, len(clients))

    def exchange(self, requests: dict[int, bytes]) -> Iterator[bytes]:
        """Hands each client its request and yields the replies; vectors are counted by fields."""
        for client, request in requests.items():
            self.meter.down += len(request)
            try:
                reply = self.parties[client].handle(request)
            except Refused:
                self.meter.drop("refused")
            except Absent:
                pass
            else:
                self.meter.up += len(reply)
                if messages.unframe(reply, self.context)[0] == messages.VECTOR:
                    self.meter.up -= self.layout.length * self.fixed.dtype.itemsize
                    self.sent.append(client)
                self.parties[client].delivered()
                yield reply

    def plain(self, ids: list[int]) -> Outcome:
        """The sum of the same integers with the same threshold, without the masks, which cancel."""
        total = np.zeros(self.layout.length, self.fixed.dtype)
        for client in ids:
            with suppress(Absent):
                total += self.contribution(client)
                self.sent.append(client)
        least, many = self.config.least(len(ids)), len(self.sent)
        if many < least:
            raise SumFailed(f"{many} of {len(ids)} clients contributed; a sum needs {least}")
        return Outcome(np.array(self.sent, dtype=np.int64), total)
