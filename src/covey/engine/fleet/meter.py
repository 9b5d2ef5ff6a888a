"""Traffic and disclosures, counted from the encoded size of every message."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from covey.core.messages import Download, Upload
from covey.core.ragged import Fields, Ragged, Rows

from .codec import SIZE_OF_HEADER, download_fields, encode_field, field_bytes, upload_fields


@dataclass
class Meter:
    n: int
    up: int = 0  # bytes
    down: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  # reason -> messages
    bytes: dict[tuple[str, str], int] = field(default_factory=dict)  # (step, field) -> bytes
    sends_N: dict[tuple[str, str], Tensor] = field(default_factory=dict)  # messages of each client

    def sent(self, download: Download, many: int) -> None:
        """One request each: the shared fields in every one, and the client's own rows."""
        self.down += many * SIZE_OF_HEADER
        for path, value in download_fields(download):
            if path.startswith("shared/"):
                self.down += many * (
                    _one(path, value) if isinstance(value, Tensor) else _alone(path, value)
                )
            else:
                self.down += field_bytes(path, value)

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
        """Bytes of messages inside do not count as traffic. What their fields disclose is still counted."""
        traffic = self.up, self.down
        try:
            yield
        finally:
            self.up, self.down = traffic

    @contextmanager
    def apart(self) -> Iterator["Meter"]:
        """Everything inside is counted by another meter, which is complete after the block."""
        mine, other = dict(vars(self)), Meter(self.n)
        vars(self).update(vars(Meter(self.n)))
        try:
            yield other
        finally:
            vars(other).update(vars(self))
            vars(self).update(mine)

    def note(self, step: str, upload: Upload) -> None:
        """Fields of a message whose bytes were counted when it came in."""
        with self.paused():
            self.received(step, upload)

    def envelope(self, many: int) -> None:
        self.up += SIZE_OF_HEADER * many

    def count(self, step: str, name: str, size: int, ids_C: Tensor) -> None:
        """One message of each of these clients held the field; together it took `size` bytes."""
        key = (step, name)
        self.up += size
        self.bytes[key] = self.bytes.get(key, 0) + size
        counts = self.sends_N.setdefault(key, torch.zeros(self.n, dtype=torch.int32))
        counts[ids_C.cpu()] += 1

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
        self.sends_N = {_key(k): v for k, v in _below("meter/sends/", state).items()}
        self.bytes = {_key(k): int(v) for k, v in _below("meter/size/", state).items()}
        self.dropped = {k: int(v) for k, v in _below("meter/dropped/", state).items()}


def _below(start: str, state: Fields) -> Fields:
    """The entries whose names start so, without it."""
    return {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}


def _key(path: str) -> tuple[str, str]:
    """Step and field."""
    step, _, name = path.partition(":")
    return step, name


def _alone(path: str, value: Ragged | Rows) -> int:
    """Lists that go to every client as they are."""
    return len(encode_field(path, value))


def _one(path: str, value: Tensor) -> int:
    """A tensor that goes to every client as it is, without a leading C."""
    return field_bytes(path, value[None]) - 4
