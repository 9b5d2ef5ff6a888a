"""Puts encryption between a server and its clients: all parameters on the server are encrypted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from covey.aggregate.combine import Mean, Sum
from covey.aggregate.grouping import Everyone
from covey.aggregate.step import Add
from covey.contract.aggregation import ServerStep
from covey.contract.fleet import Request
from covey.contract.mechanism import ServerHooks
from covey.core import Answers, CoveyError, Download, FieldDict, Fields, Sent, Total
from covey.core.checks import installed
from covey.engine.fleet.base import KeyHolders
from covey.engine.method import Method
from covey.engine.secure.fixed_point import OutOfRange
from covey.engine.secure.fleet import AT_ONCE
from covey.engine.secure.layout import nothing, part_of
from covey.engine.secure.messages import context_of
from covey.engine.secure.settings import FEWEST, SINGLES
from covey.engine.server_state import Server, start

from .ckks import LARGEST, SERVER, TABLE, BadMessage, Public, Secret, pack, unpack

NAME = "encrypted"  # of the ciphertexts of all parameters, on the server and in updates
HOOKS = [name for name in vars(ServerHooks) if name[0] != "_"]  # they work on what the server has


@dataclass
class EncryptedFleet:
    """Clients with a secret key as a `server` without it sees them; they exchange bytes only."""

    devices: Any  # the fleet that computes the answers, and keeps the clients' keys
    like: Fields  # parameters of the same shapes
    scaled: bool = False  # whether the server multiplies sums
    run: int = 0
    hides = SINGLES

    def __post_init__(self) -> None:
        installed("tenseal", "encrypted sums", "he")
        if not isinstance(self.devices, KeyHolders):
            wrong = f"{type(self.devices).__name__} has no place for keys of its clients, `agreed`"
            raise CoveyError(f"{wrong}; set fleet.encrypted = false")

    @cached_property
    def clients(self) -> Secret:
        return Secret.load(self.devices.agreed, self.like)

    @cached_property
    def server(self) -> Public:
        many = sum(v.numel() for v in self.like.values())
        return Public(unpack(self.devices.agreed["ckks/public"]), many)

    @property
    def ids_N(self) -> Tensor:
        return self.devices.ids_N

    def begin(self, server: Server) -> Server:
        """A client makes the keys, and sends the public one and the first parameters, encrypted.

        It hands the secret key to the other clients past the server; the traffic has no such bytes.
        """
        self.devices.agreed.update(Secret.make(self.scaled))
        table = self.clients.seal(server.public, TABLE, SERVER)
        self.devices.meter.up += len(self.server.public) + len(table)
        return replace(server, public={NAME: pack(table).to(self.devices.device)})

    def ask(self, request: Request) -> Answers:
        """Clients decrypt the parameters. The server gets the sum of their encrypted updates."""
        table = request.download.public.shared.get(NAME)
        if isinstance(table, Tensor):
            sent = Sent(dict(self.clients.open(unpack(table))))
            request = replace(request, download=Download(sent), fold=False)
        if request.step != "train" or table is None:
            return self.devices.ask(request)
        self.devices.meter.down += len(request.ids_C) * len(table)
        return self._sum(request.to(self.devices.device))

    def _sum(self, request: Request) -> Total:
        """Adds up one message after the other, so that no two of them are in memory."""
        name, meter = context_of(self.run, request.round, NAME), self.devices.meter
        total, ids = None, []
        for client, message in self._messages(request, name):
            try:
                one = self.server.decoded(message, name, client)
            except BadMessage:
                meter.drop("malformed")
                continue
            total = self.server.added(total, one._replace(summed=1))
            ids.append(client)
        if total is None or len(ids) < FEWEST:
            meter.drop("too few for an encrypted sum", len(ids))
            return nothing(request.ids_C)
        ids_C = request.ids_C[torch.isin(request.ids_C, torch.tensor(ids).to(request.ids_C))]
        return Total(ids_C, torch.tensor(len(ids)), {NAME: pack(self.server.encoded(total))})

    def _messages(self, request: Request, name: bytes) -> Iterator[tuple[int, bytes]]:
        """The encrypted updates; the clear ones never leave the devices."""
        meter, limit = self.devices.meter, LARGEST / max(len(request.ids_C), 1)
        for place_P in torch.arange(len(request.ids_C)).to(request.ids_C).split(AT_ONCE):
            with meter.apart():
                upload = self.devices.ask(request.take(place_P))
            for row, client in enumerate(upload.ids_C.tolist()):
                update = part_of(upload, row).update
                try:
                    message = self.clients.seal(update, name, client, limit)
                except OutOfRange:
                    meter.drop("out of range")
                    continue
                meter.up += len(message)
                with meter.paused():
                    for k, v in update.items():  # each field has its share of the bytes
                        share = len(message) * v.numel() // self.clients.many
                        meter.count("train", f"update/{k}", share, upload.ids_C[row, None])
                yield client, message


@dataclass(frozen=True)
class AddCiphertexts(ServerStep):
    """`Add` on ciphertexts; `mean` divides the sum by the number of its clients."""

    fleet: EncryptedFleet  # which has the server's key, once there is one
    rate: float
    mean: bool
    name: str = "server step"

    def step(self, memory: FieldDict, params: Fields, update: Fields) -> tuple[FieldDict, Fields]:
        server = self.fleet.server
        table, total = (server.decoded(unpack(fields[NAME])) for fields in (params, update))
        factor = self.rate / (total.summed if self.mean else 1)
        moved = pack(server.encoded(server.added(table, total, factor)))
        return memory, {NAME: moved.to(params[NAME].device)}


def encrypted(method: Method, devices: Any, run: int) -> tuple[Method, EncryptedFleet]:
    """The method and the clients as a server of ciphertexts sees them; refuses other parts."""
    parts, step = (method.combine, method.server_step, method.grouping), method.server_step
    found = [type(p).__name__ for p in parts if type(p) not in (Sum, Mean, Add, Everyone)]
    for m in method.mechanisms:
        found += [m.name] * (bool(m.exchanges) or any(map(m.implements, HOOKS)))
    if method.solver is None or method.model.uploaded:
        found.append(type(method.model).__name__)
    if method.weighting != "equal":
        found.append(f"weighting = {method.weighting}")
    if found or not isinstance(step, Add):
        wrong = f"{', '.join(map(repr, found))} cannot run on a server that only adds ciphertexts"
        other = "use secure sums (fleet.secure = true)"
        plain = "a combine Sum or Mean with the step Add, and no part that works on the server"
        raise CoveyError(f"{wrong}; {other}, or {plain}")
    mean = isinstance(method.combine, Mean)
    fleet = EncryptedFleet(devices, start(method).public, mean or step.rate != 1, run)
    changed = AddCiphertexts(fleet, step.rate, mean)
    return replace(method, combine=Sum(), server_step=changed), fleet


def opened(server: Server, agreed: Fields, method: Method) -> Server:
    """The server as clients with the keys `agreed` read it; one in clear as it is."""
    if NAME not in server.public:
        return server
    table = server.public[NAME]
    clear = Secret.load(agreed, start(method).public).open(unpack(table))
    return replace(server, public={k: v.to(table.device) for k, v in clear.items()})
