"""A fleet of which the server hears sums only. It stands before another fleet, whose clients run the protocol."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from covey.contract.fleet import Request
from covey.core.errors import CoveyError
from covey.core.messages import Total, Upload
from covey.engine.fleet.base import Metered
from covey.engine.fleet.meter import Meter

from . import messages
from .coordinator import Coordinator, Outcome
from .fixed_point import Fixed, Floats, Integers, OutOfRange
from .groups import GroupSum, added, drawn, within
from .keys import needed
from .layout import Layout, nothing, part_of
from .party import Party, Refused
from .settings import SUMMED, FleetConfig, SumFailed

AT_ONCE = 256  # clients whose uploads exist together; their dense parts exist one by one


class Devices(Metered, Protocol):
    """The fleet behind: simulated, or over a wire."""

    @property
    def ids_N(self) -> Tensor: ...

    def ask(self, request: Request) -> Upload | Total: ...


class Absent(ValueError):
    """This client has nothing to contribute, or nothing that fits."""


@dataclass
class Contributions:
    """The clients' parts of one sum, computed some clients at a time as they are asked for, in the given order."""

    devices: Devices
    request: Request
    order_C: Tensor  # places in `request.ids_C`
    ready: dict[int, tuple[Upload, int]] = field(
        default_factory=dict
    )  # an upload, and the client's row in it
    equal: bool = True  # whether everybody so far counts the same

    def __post_init__(self) -> None:
        self.waiting = list(self.order_C.split(AT_ONCE))

    def layout(self) -> Layout | None:
        """Of the first client that answers; None where nobody does."""
        while not self.ready and self.waiting:
            self._more()
        return Layout.of(part_of(*next(iter(self.ready.values())))) if self.ready else None

    def take(self, client: int, layout: Layout) -> Floats:
        while client not in self.ready and self.waiting:
            self._more()
        if client not in self.ready:
            raise Absent("no answer")
        vector = layout.vector(part_of(*self.ready.pop(client)))
        if vector is None:
            raise Absent("odd shape")
        return vector

    def _more(self) -> None:
        rows = self.waiting.pop(0)
        some = replace(self.request.take(rows), fold=False)
        with self.devices.meter.apart() as clear:
            upload = self.devices.ask(some)
        self.devices.meter.down += (
            clear.down
        )  # what the parts would take in clear never left the clients
        for why, many in clear.dropped.items():
            self.devices.meter.drop(why, many)
        assert isinstance(upload, Upload)
        self.equal &= bool((upload.weight_C == 1).all())
        self.ready |= {client: (upload, row) for row, client in enumerate(upload.ids_C.tolist())}


@dataclass
class SecureFleet:
    """`ask` sums reports and updates; what goes to clients, and what a study measures on them, passes as it is."""

    devices: Devices
    config: FleetConfig
    run: int = 0
    summed: dict[str, int] = field(default_factory=dict)  # by step: the last round

    def __post_init__(self) -> None:
        if self.config.masks:
            needed()

    @property
    def hides(self) -> frozenset[str]:
        return self.config.hides

    @property
    def ids_N(self) -> Tensor:
        return self.devices.ids_N

    def ask(self, request: Request) -> Upload | Total:
        step, round = request.step, request.round
        if step not in SUMMED or step not in self.hides:
            return self.devices.ask(request)
        if not request.fold:
            raise CoveyError(
                f"single {step}s were asked for, which secure aggregation hides; use a linear combine"
            )
        if (
            self.summed.get(step, -1) >= round
        ):  # the difference of two sums may be one client's part
            raise CoveyError(
                f"the {step}s of round {round} were summed already; a client contributes once"
            )
        self.summed[step] = round
        return self._sum(request.to(self.ids_N.device), self.devices.meter)

    def _sum(self, request: Request, meter: Meter) -> Total:
        """Over all groups that came about and have no row that is too long."""
        step, round, ids_C = request.step, request.round, request.ids_C
        groups = drawn(ids_C, self.config.group, self.run, round, step)
        parts = Contributions(self.devices, request, torch.cat(groups))
        layout = parts.layout()
        if layout is None:
            return nothing(ids_C)
        sums = []
        for number, place_G in enumerate(groups):
            context = messages.context_of(self.run, round, f"{step}/{number}" if number else step)
            try:
                sums.append(self._group(parts, ids_C[place_G], layout, context, meter))
            except SumFailed:
                meter.drop("secure sum failed", len(place_G))
        fine = within(sums, self.config.longest)
        if gone := sum(len(g.ids_C) for g, ok in zip(sums, fine) if not ok):
            meter.drop("in a group with too long a row", gone)
        if not any(fine):
            return nothing(ids_C)
        whose_C, total = added([g for g, ok in zip(sums, fine) if ok])
        return layout.total(ids_C[torch.isin(ids_C, whose_C)], total)

    def _group(
        self, parts: Contributions, ids_G: Tensor, layout: Layout, context: bytes, meter: Meter
    ) -> GroupSum:
        fixed = Fixed(self.config.bits, self.config.range, len(ids_G))
        fixed.check()
        room = _Room(parts, layout, fixed, meter, parts.request.step, context, self.config)
        try:
            outcome = (
                room.masked(ids_G.tolist()) if self.config.masks else room.plain(ids_G.tolist())
            )
        finally:
            room.tell()
        sums = fixed.decode(outcome.total, len(outcome.ids))
        return GroupSum(torch.from_numpy(outcome.ids).to(ids_G.device), sums, layout.longest(sums))


@dataclass
class _Room:
    """All parties of one sum in this process, talking in bytes only."""

    parts: Contributions
    layout: Layout
    fixed: Fixed
    meter: Meter
    step: str
    context: bytes
    config: FleetConfig
    sent: list[int] = field(default_factory=list)  # whose contributions have left

    def tell(self) -> None:
        """Notes what left: the fields of the vectors; a weight that is 1 for everybody tells nothing."""
        for name, many in self.layout.fields().items():
            size = many * self.fixed.dtype.itemsize * len(self.sent)
            if name == "weight" and self.parts.equal:
                self.meter.up += size
            else:
                self.meter.count(self.step, name, size, torch.tensor(self.sent, dtype=torch.long))

    def contribution(self, client: int) -> Integers:
        """What a client adds, or `Absent`, with the reason counted."""
        try:
            return self.fixed.encode(self.parts.take(client, self.layout))
        except OutOfRange as error:
            self.meter.drop("out of range")
            raise Absent from error
        except Absent as why:
            if str(why) == "odd shape":  # one that gave no answer was counted where that was seen
                self.meter.drop("odd shape")
            raise

    def masked(self, ids: list[int]) -> Outcome:
        make = lambda c: Party(c, self.context, self.config, lambda _: self.contribution(c))
        self.parties = {c: make(c) for c in ids}
        server = Coordinator(
            ids, self.context, self.config, self.layout.length, self.fixed.dtype, self.exchange
        )
        try:
            return server.run()
        finally:
            for what, whose in server.flagged.items():
                self.meter.drop(what, len(whose))

    def exchange(self, requests: dict[int, bytes]) -> Iterator[bytes]:
        for client, request in requests.items():
            self.meter.down += len(request)
            for reply in self._answer(client, request):
                self.meter.up += len(reply)
                if messages.unframe(reply, self.context)[0] == messages.VECTOR:
                    self.meter.up -= (
                        self.layout.length * self.fixed.dtype.itemsize
                    )  # counted by fields
                    self.sent.append(client)
                self.parties[client].delivered()
                yield reply

    def _answer(self, client: int, request: bytes) -> Iterable[bytes]:
        try:
            return [self.parties[client].handle(request)]
        except Refused:
            self.meter.drop("refused")
        except Absent:
            pass
        return []

    def plain(self, ids: list[int]) -> Outcome:
        """The same integers, thresholds and refusals without the masks, which cancel."""
        total = np.zeros(self.layout.length, self.fixed.dtype)
        for client in ids:
            with suppress(Absent):
                total += self.contribution(client)
                self.sent.append(client)
        least = self.config.least(len(ids))
        if len(self.sent) < least:
            raise SumFailed(
                f"{len(self.sent)} of {len(ids)} clients contributed; a sum needs {least}"
            )
        return Outcome(np.array(self.sent, dtype=np.int64), total)
