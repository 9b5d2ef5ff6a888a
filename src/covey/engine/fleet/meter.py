"""Traffic and disclosures, counted from the encoded size of every message."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core import Download, Fields, Upload

from .codec import SIZE_OF_HEADER, download_fields, encode_field, field_bytes, upload_fields

PENDING = 1024  # lists of senders of a field, after which a meter adds them up


@dataclass
class Meter:
    """The traffic of n clients; what they sent is also counted by step and field."""

    n: int
    up: int = 0  # bytes that clients sent
    down: int = 0  # bytes that the server sent
    dropped: dict[str, int] = field(default_factory=dict)  # messages, by reason
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    # Senders of the messages that are not in `counts_N` yet, by step and field.
    senders: dict[tuple[str, str], list[Tensor]] = field(default_factory=dict)
    counts_N: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    @property
    def sends_N(self) -> dict[tuple[str, str], Tensor]:
        """How many messages of each client had a field, [N] by step and field."""
        for key, parts in self.senders.items():
            zeros = torch.zeros(self.n, dtype=torch.int32)
            counts = self.counts_N.setdefault(key, zeros)
            ids_T = torch.cat(parts)
            counts.index_add_(0, ids_T, torch.ones(len(ids_T), dtype=torch.int32))
        self.senders.clear()
        return self.counts_N

    def merge(self, other: "Meter") -> None:
        """Adds what another meter of the same clients has counted since it was made."""
        self.up, self.down = self.up + other.up, self.down + other.down
        for reason, many in other.dropped.items():
            self.drop(reason, many)
        for key, size in other.bytes.items():
            self.bytes[key] = self.bytes.get(key, 0) + size
        for key, parts in other.senders.items():
            self._pend(key, parts)

    def _pend(self, key: tuple[str, str], parts: list[Tensor]) -> None:
        pending = self.senders.setdefault(key, [])
        pending += parts
        if len(pending) > PENDING:
            self.sends_N  # noqa: B018  # adds up what is pending

    def sent(self, download: Download, many: int) -> None:
        """Counts one request for each of `many` clients: the shared fields, and its own rows."""
        self.down += many * SIZE_OF_HEADER
        for path, value in download_fields(download):
            if path.startswith("each/"):
                self.down += field_bytes(path, value)
            elif isinstance(value, Tensor):  # without a leading C
                self.down += many * (field_bytes(path, value[None]) - 4)
            else:
                self.down += many * len(encode_field(path, value))

    def received(self, step: str, upload: Upload) -> None:
        self.envelope(len(upload))
        for name, value in upload_fields(upload):
            who = upload.ids_C
            if name == "weight":  # a client whose weight is 1 does not send it
                some = (upload.weight_C != 1).nonzero()[:, 0]
                value, who = upload.weight_C[some], who[some]
            self.count(step, name, field_bytes(name, value), who)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Counts what messages inside disclose, but not their bytes as traffic."""
        traffic = self.up, self.down
        try:
            yield
        finally:
            self.up, self.down = traffic

    @contextmanager
    def apart(self) -> Iterator["Meter"]:
        """Counts what happens inside by another meter, and here only what was dropped."""
        mine, other = dict(vars(self)), Meter(self.n)
        vars(self).update(vars(Meter(self.n)))
        try:
            yield other
        finally:
            vars(other).update(vars(self))
            vars(self).update(mine)
            for reason, many in other.dropped.items():
                self.drop(reason, many)

    def envelope(self, many: int) -> None:
        self.up += SIZE_OF_HEADER * many

    def count(self, step: str, name: str, size: int, ids_C: Tensor) -> None:
        """Counts a field in one message of each of these clients, `size` bytes in all."""
        key = (step, name)
        self.up += size
        self.bytes[key] = self.bytes.get(key, 0) + size
        self._pend(key, [ids_C.cpu()])

    def drop(self, reason: str, many: int = 1) -> None:
        if many:
            self.dropped[reason] = self.dropped.get(reason, 0) + many

    def most_sends(self) -> dict[tuple[str, str], int]:
        return {key: int(counts.max()) for key, counts in self.sends_N.items()}

    def state(self) -> Fields:
        """Tensors for a checkpoint."""
        out = {"meter/bytes": torch.tensor([self.up, self.down])}
        for (step, name), counts in self.sends_N.items():
            out[f"meter/sends/{step}:{name}"] = counts
            out[f"meter/size/{step}:{name}"] = torch.tensor(self.bytes[step, name])
        return out | {f"meter/dropped/{why}": torch.tensor(n) for why, n in self.dropped.items()}

    def load(self, state: Fields) -> None:
        self.up, self.down = state["meter/bytes"].tolist()
        self.senders, self.counts_N, self.bytes, self.dropped = {}, {}, {}, {}
        for path, value in state.items():
            kind, _, name = path.removeprefix("meter/").partition("/")
            step, _, rest = name.partition(":")
            if kind == "sends":
                self.counts_N[step, rest] = value.clone()
            elif kind == "size":
                self.bytes[step, rest] = int(value)
            elif kind == "dropped":
                self.dropped[name] = int(value)
