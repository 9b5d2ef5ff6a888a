"""Every message as bytes, each client by itself: what a network carries, without the network."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.aggregate.fold import total_of
from covey.contract.fleet import Request
from covey.core import Answers, Download, Field, FieldDict, Fields, Ragged, Rng, Rows, Upload, stack
from covey.engine.client.malicious import ClientProgram
from covey.engine.client.program import LocalData

from . import codec
from .base import LocalFleet
from .store import Store
from .validation import checked

RELEASES = ("enrol", "report", "train")  # steps whose answers may hold noise
Transport = Callable[[int, bytes], Iterable[bytes]]  # client, request -> what came back


@dataclass
class Node:
    """One device. It answers a repeated request with the same bytes and without acting twice.

    If noise is drawn on the device, an answer counts as released for good: after the device's state
    was set back to the start of the round, it gives the same answer to the same request, refuses
    every other one, and enrols only once.
    """

    program: ClientProgram
    client: int
    data: LocalData  # of a cohort of one
    run: int
    seed: int
    kept: FieldDict = field(default_factory=dict)
    round: int = 0  # the last one in which it was asked
    answered: dict[bytes, bytes] = field(default_factory=dict)  # digest of a request: reply
    # Answers of this round that hold device noise: digest of the request, reply, what was kept.
    released: dict[str, tuple[bytes, bytes, FieldDict]] = field(default_factory=dict)
    enrolled: Upload | None = None  # what it sent when it enrolled, with device noise

    def __post_init__(self) -> None:
        self.ids_C = torch.tensor([self.client])
        self.kept = self.program.birth(Rng.of(self.seed, 0, self.ids_C))

    def handle(self, request: bytes) -> bytes:
        """Returns the reply to a request; `Malformed` if there is none."""
        digest = hashlib.sha256(request).digest()
        if digest in self.answered:
            return self.answered[digest]
        envelope, download = codec.decode_download(request)
        if envelope.run != self.run or envelope.client != self.client:
            raise codec.Malformed("not addressed to this client")
        if envelope.round < self.round:
            raise codec.Malformed("of a round that is over")
        if envelope.round > self.round:
            self.round, self.answered, self.released = envelope.round, {}, {}
        reply = self._released(envelope, digest) or self._answer(envelope, download, digest)
        self.answered[digest] = reply
        return reply

    def _answer(self, envelope: codec.Envelope, download: Download, digest: bytes) -> bytes:
        rng = Rng.of(self.seed, envelope.round, self.ids_C)
        request = Request(envelope.step, envelope.round, self.ids_C, download)
        self.kept, upload = self.program.answer(request, self.kept, self.data, rng)
        reply = codec.encode_upload(envelope, upload)
        if envelope.step in RELEASES and self.program.uses_device_noise:
            self.released[envelope.step] = digest, reply, dict(self.kept)
            self.enrolled = upload if envelope.step == "enrol" else self.enrolled
        return reply

    def _released(self, envelope: codec.Envelope, digest: bytes) -> bytes | None:
        """The answer that was released already, since new noise would spend the budget again."""
        if envelope.step == "enrol" and self.enrolled is not None:
            return codec.encode_upload(envelope, self.enrolled)
        if envelope.step not in self.released:
            return None
        request, reply, kept = self.released[envelope.step]
        if request != digest:
            raise codec.Malformed(
                "another request was answered already; new noise would cost privacy"
            )
        self.kept = dict(kept)
        return reply


@dataclass
class WireFleet(LocalFleet):
    """Clients that compute one by one and exchange nothing but bytes with the server."""

    run: int = 1  # in every message
    limit: int = 1 << 28  # bytes of the largest message that the server accepts
    transport: Transport | None = None  # how requests reach nodes; tests put faults here
    nodes: dict[int, Node] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.declared = {(d.step, d.name) for d in self.program.disclosures() if not d.given}
        self.nodes = {}
        for c in range(len(self.data.training.items)):
            program: ClientProgram = self.program
            if self.malicious and c >= self.n_honest:
                program = self.malicious
            data = self.data.take(torch.tensor([c]))
            self.nodes[c] = Node(program, c, data, self.run, self.seed)

    def private(self, ids_C: Tensor) -> Iterator[tuple[Tensor, FieldDict]]:
        for place, client in enumerate(ids_C.tolist()):
            yield torch.tensor([place]), self.nodes[client].kept

    def convert(self, change: Callable[[FieldDict], FieldDict]) -> None:
        for node in self.nodes.values():
            node.kept = change(node.kept)

    def state(self) -> Fields:
        """What every node keeps, and what was counted, without the replies of the current round."""
        kept, first = Fields(), torch.tensor([0])
        for client, node in self.nodes.items():
            alone = Store(1)
            alone.put(first, node.kept)
            kept |= {f"node/{client}/{k}": v for k, v in alone.state(first).items()}
        shared = self.malicious.memory.state() if self.malicious else {}
        return {**kept, **shared, **super().state()}

    def load(self, state: Fields) -> None:
        super().load(state)
        if self.malicious:
            crew = {k: v for k, v in state.items() if k.startswith("crew/")}
            self.malicious.memory.load(crew)
        mine: dict[int, Fields] = {client: {} for client in self.nodes}
        for path, value in state.items():
            if path.startswith("node/"):
                _, client, name = path.split("/", 2)
                mine[int(client)][name] = value
        for number, node in self.nodes.items():
            alone, first = Store(1), torch.tensor([0])
            alone.load(first, mine[number])
            node.kept = alone.take(first)

    def ask(self, request: Request) -> Answers:
        request = self.scaled(request)
        uploads: dict[int, Upload] = {}
        for row, client in enumerate(request.ids_C.tolist()):
            envelope = codec.Envelope(request.step, self.run, request.round, client)
            sent = codec.encode_download(envelope, request.download.take(torch.tensor([row])))
            self.meter.down += len(sent)
            handle = self.transport or (lambda client, sent: [self.nodes[client].handle(sent)])
            for reply in handle(client, sent):
                self._receive(envelope, reply, request, uploads)
        good = self._alike(uploads)
        upload = stack(good) if good else Upload(request.ids_C[:0], torch.zeros(0))
        return total_of(upload, scales=request.scales) if request.fold else upload

    def _receive(
        self, asked: codec.Envelope, reply: bytes, request: Request, uploads: dict[int, Upload]
    ) -> None:
        self.meter.up += len(reply)
        if len(reply) > self.limit:
            return self.meter.drop("oversized")
        try:
            envelope, upload = codec.decode_upload(reply, self.limit)
        except codec.Malformed:
            return self.meter.drop("malformed")
        if envelope != asked:
            return self.meter.drop("misaddressed")
        if envelope.client in uploads:
            return self.meter.drop("replayed")
        if any((asked.step, path) not in self.declared for path, _ in codec.upload_fields(upload)):
            return self.meter.drop("undeclared")
        with self.meter.paused():  # its bytes were counted when it came in
            self.meter.received(asked.step, upload)
        shared = request.download.public.shared
        for k, v in upload.update.items():
            sent = shared.get(k)
            if not isinstance(sent, Tensor) or isinstance(v, Ragged) or _shape(v)[1] != sent.shape:
                return self.meter.drop("odd shape")
        assert request.scales is not None
        if len(checked(upload, request.scales, self.meter)):
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
    fields = [(path, value) for path, value in codec.upload_fields(upload) if path != "weight"]
    return tuple(sorted((path, *_shape(value)) for path, value in fields))


def _shape(value: Field) -> tuple[str, tuple[int, ...]]:
    """Kind and type, and the size of what one client sends where all send the same."""
    if isinstance(value, Tensor):
        return f"tensor {value.dtype}", tuple(value.shape[1:])
    if isinstance(value, Ragged):
        return f"ragged {value.values.dtype}", tuple(value.values.shape[1:])
    assert isinstance(value, Rows)
    return f"rows {value.values.dtype}", (value.height, *value.values.shape[1:])
