"""Every message as bytes, each client alone: what a real network does, without the network."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.aggregate.fold import total_of
from covey.contract.fleet import Request
from covey.core.messages import Download, Total, Upload, stack
from covey.core.ragged import Field, FieldDict, Fields, Ragged, Rows
from covey.core.rng import Rng
from covey.engine.client.malicious import Malicious
from covey.engine.client.program import LocalData, Program

from .base import Clients
from .codec import (
    Envelope,
    Malformed,
    decode_download,
    decode_upload,
    encode_download,
    encode_upload,
    upload_fields,
)
from .flat import flattened, restored
from .meter import Meter
from .validation import finite_rows

RELEASES = ("enrol", "report", "train")  # steps whose answers hold noise, where there is any
Transport = Callable[[int, bytes], Iterable[bytes]]  # client, request -> what came back


@dataclass
class Node:
    """One device. It answers a repeated request with the same bytes and without acting twice.

    Where its noise is its own, what it has sent counts for good: after its state was set back to the start of the
    round, it answers the same request with the same bytes and no other, and it enrols once, whoever asks.
    """

    program: Program | Malicious
    client: int
    data: LocalData
    run: int
    seed: int
    kept: FieldDict = field(default_factory=dict)
    round: int = 0
    answered: dict[bytes, bytes] = field(default_factory=dict)  # of the current round
    released: dict[str, tuple[bytes, bytes, FieldDict]] = field(
        default_factory=dict
    )  # step: request, reply, kept after
    enrolled: Upload | None = None

    def __post_init__(self) -> None:
        self.kept = self.program.birth(Rng.of(self.seed, 0, self._id()))

    def _id(self) -> Tensor:
        return torch.tensor([self.client])

    def handle(self, request: bytes) -> bytes:
        digest = hashlib.sha256(request).digest()
        if digest in self.answered:
            return self.answered[digest]
        envelope, download = decode_download(request)
        if envelope.run != self.run or envelope.client != self.client:
            raise Malformed("not addressed to this client")
        if envelope.round < self.round:
            raise Malformed("of a round that is over")
        if envelope.round > self.round:
            self.round, self.answered, self.released = envelope.round, {}, {}
        reply = self._said_before(envelope, digest) or self._answer(envelope, download, digest)
        self.answered[digest] = reply
        return reply

    def _answer(self, envelope: Envelope, download: Download, digest: bytes) -> bytes:
        rng = Rng.of(self.seed, envelope.round, self._id())
        self.kept, upload = self.program.answer(
            envelope.step, self.kept, self.data, download, self._id(), rng, envelope.round
        )
        reply = encode_upload(envelope, upload)
        if envelope.step in RELEASES and getattr(self.program, "uses_device_noise", False):
            self.released[envelope.step] = digest, reply, dict(self.kept)
            self.enrolled = upload if envelope.step == "enrol" else self.enrolled
        return reply

    def _said_before(self, envelope: Envelope, digest: bytes) -> bytes | None:
        """What was released already, where drawing noise anew would spend the budget again."""
        if envelope.step == "enrol" and self.enrolled is not None:
            return encode_upload(envelope, self.enrolled)
        if envelope.step not in self.released:
            return None
        request, reply, kept = self.released[envelope.step]
        if request != digest:
            raise Malformed(
                "another request was answered in this round, and new noise would spend the budget again"
            )
        self.kept = dict(kept)
        return reply


@dataclass
class WireFleet:
    program: Program
    data: LocalData
    seed: int = 0
    run: int = 1
    n_present: int = 0
    malicious: Malicious | None = None
    limit: int = 1 << 28  # bytes of the largest message taken
    transport: Transport | None = None  # how requests reach nodes; tests put faults here
    hides: frozenset[str] = frozenset()
    nodes: dict[int, Node] = field(init=False)
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        n = len(self.data.training.items)
        self.n_honest = self.malicious.first if self.malicious else n
        self.n_present = self.n_present or self.n_honest
        self.meter = Meter(n)
        self.declared = {(d.step, d.name) for d in self.program.disclosures() if not d.given}
        self.nodes = {
            c: Node(self._program(c), c, self._data(c), self.run, self.seed) for c in range(n)
        }

    def _program(self, client: int) -> Program | Malicious:
        return self.malicious if self.malicious and client >= self.malicious.first else self.program

    def _data(self, client: int) -> LocalData:
        return self.data.take(torch.tensor([client]))

    @classmethod
    def of(cls, clients: Clients) -> "WireFleet":
        return cls(
            clients.program,
            clients.data,
            clients.seed,
            n_present=clients.n_present,
            malicious=clients.malicious,
        )

    def join(self, ids_C: Tensor) -> None:
        self.n_present += len(ids_C)

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        for place, client in enumerate(ids_C.tolist()):
            yield torch.tensor([place]), self.nodes[client].kept

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        for node in self.nodes.values():
            node.kept = change(node.kept)

    def state(self) -> Fields:
        """What every node keeps, and what was counted. Replies of the current round are not in it."""
        crew = self.malicious.crew.state() if self.malicious else {}
        kept = {
            f"node/{client}/{name}": value
            for client, node in self.nodes.items()
            for name, value in flattened(node.kept).items()
        }
        return {**kept, **self.meter.state(), **crew, "present": torch.tensor(self.n_present)}

    def load(self, state: Fields) -> None:
        mine: dict[int, Fields] = {client: {} for client in self.nodes}
        for path, value in state.items():
            if path.startswith("node/"):
                _, whose, name = path.split("/", 2)
                mine[int(whose)][name] = value
        for client, node in self.nodes.items():
            node.kept = restored(mine[client])
        self.meter.load({k: v for k, v in state.items() if k.startswith("meter/")})
        if self.malicious:
            self.malicious.crew.load({k: v for k, v in state.items() if k.startswith("crew/")})
        self.n_present = int(state["present"])

    @property
    def ids_N(self) -> Tensor:
        return torch.tensor([c for c in self.nodes if c < self.n_present or c >= self.n_honest])

    def ask(self, request: Request) -> Upload | Total:
        step, round, ids_C = request.step, request.round, request.ids_C
        download, fold = request.download, request.fold
        uploads: dict[int, Upload] = {}
        for row, client in enumerate(ids_C.tolist()):
            envelope = Envelope(step, self.run, round, client)
            sent = encode_download(envelope, download.take(torch.tensor([row])))
            self.meter.down += len(sent)
            for reply in self._send(client, sent):
                self._receive(envelope, reply, download, uploads)
        good = self._alike(uploads)
        if not good:
            empty = Upload(ids_C[:0], torch.zeros(0))
            return total_of(empty) if fold else empty
        upload = stack(good)
        return total_of(upload) if fold else upload

    def _send(self, client: int, request: bytes) -> Iterable[bytes]:
        return (
            self.transport(client, request)
            if self.transport
            else [self.nodes[client].handle(request)]
        )

    def _receive(
        self, asked: Envelope, reply: bytes, download: Download, uploads: dict[int, Upload]
    ) -> None:
        """Takes one message, or drops it and says why."""
        self.meter.up += len(reply)
        if len(reply) > self.limit:
            return self.meter.drop("oversized")
        try:
            envelope, upload = decode_upload(reply, self.limit)
        except Malformed:
            return self.meter.drop("malformed")
        if envelope != asked:
            return self.meter.drop("misaddressed")
        if envelope.client in uploads:
            return self.meter.drop("replayed")
        if any((asked.step, path) not in self.declared for path, _ in upload_fields(upload)):
            return self.meter.drop("undeclared")
        self.meter.note(asked.step, upload)
        if not all(_moves(v, download.public.shared.get(k)) for k, v in upload.update.items()):
            return self.meter.drop("odd shape")
        if not bool(finite_rows(upload).all()):
            return self.meter.drop("not finite")
        uploads[envelope.client] = upload

    def _alike(self, uploads: dict[int, Upload]) -> list[Upload]:
        """Uploads of the shape that most have; an odd one cannot be stacked with the rest."""
        if not uploads:
            return []
        forms = {client: _form(upload) for client, upload in uploads.items()}
        usual = Counter(forms.values()).most_common(1)[0][0]
        self.meter.drop("odd shape", sum(form != usual for form in forms.values()))
        return [upload for client, upload in uploads.items() if forms[client] == usual]


def _form(upload: Upload) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return tuple(
        sorted((path, *_shape(value)) for path, value in upload_fields(upload) if path != "weight")
    )


def _shape(value: Field) -> tuple[str, tuple[int, ...]]:
    """Kind and type, and the size of what one client sends where all send the same."""
    if isinstance(value, Tensor):
        return f"tensor {value.dtype}", tuple(value.shape[1:])
    if isinstance(value, Ragged):
        return f"ragged {value.values.dtype}", tuple(value.values.shape[1:])
    assert isinstance(value, Rows)
    return f"rows {value.values.dtype}", (value.height, *value.values.shape[1:])


def _moves(update: Field, sent: Field | None) -> bool:
    """Whether an update can be added to what was sent."""
    return (
        isinstance(sent, Tensor)
        and not isinstance(update, Ragged)
        and _shape(update)[1] == tuple(sent.shape)
    )
