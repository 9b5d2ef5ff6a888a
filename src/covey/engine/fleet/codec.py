"""Messages as bytes: compact and versioned, without pickle; everything that is read is checked.

Layout, little endian: header (magic, version, step, run, round, client, number of fields), then
per field its path, kind, dtype and shape, then its data. Integers travel as int32 (item ids and
offsets fit), floats as they are. The size of a message depends only on its fields and shapes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from covey.core import Download, Field, FieldDict, Ragged, Rows, Sent, Upload, offsets_of

MAGIC, VERSION = b"CVEY", 1
STEPS = ("enrol", "admit", "report", "train", "deliver", "evaluate")
HEADER = struct.Struct("<4sBBQIqH")
FIELD = struct.Struct("<BBBBII")  # length of path, kind, dtype, dimensions, lists, height of table
SIZE_OF_HEADER = HEADER.size
KINDS = ("tensor", "ragged", "rows")
WIRE = {torch.int64: (0, "<i4"), torch.float32: (1, "<f4")}
WIRE |= {torch.float64: (2, "<f8"), torch.bool: (3, "|u1")}
TORCH = {code: (dtype, wire) for dtype, (code, wire) in WIRE.items()}
MAX_DIMS = 4


class Malformed(ValueError):
    """Bytes that are not a message of this format."""


@dataclass(frozen=True)
class Envelope:
    step: str
    run: int
    round: int
    client: int


def upload_fields(upload: Upload) -> list[tuple[str, Field]]:
    """Paths and values of everything that is encoded; a weight of 1 is not sent."""
    fields = upload.fields()
    return fields[:-1] if bool((upload.weight_C == 1).all()) else fields


def field_bytes(path: str, value: Field) -> int:
    """Bytes of a field over all clients, one message each, as `encode` would write them."""
    data = value if isinstance(value, Tensor) else value.values
    head = FIELD.size + len(path.encode()) + 4 * data.dim()
    size = head * len(value) + data.numel() * _width(data)
    if isinstance(value, Tensor):
        return size
    ids = len(value.items.values) if isinstance(value, Rows) else 0
    return size + 4 * len(value) + 4 * ids


def rows_bytes(path: str, clients: int, rows: int, row: Tensor) -> int:
    """The same for `rows` table rows like `row` that `clients` clients send together."""
    head = FIELD.size + len(path.encode()) + 4 * (row.dim() + 1)
    return clients * (head + 4) + rows * (4 + row.numel() * _width(row))


def _width(x: Tensor) -> int:
    return np.dtype(WIRE[x.dtype][1]).itemsize


def encode(envelope: Envelope, fields: list[tuple[str, Field]]) -> bytes:
    step, address = STEPS.index(envelope.step), (envelope.run, envelope.round, envelope.client)
    head = HEADER.pack(MAGIC, VERSION, step, *address, len(fields))
    return head + b"".join(encode_field(path, value) for path, value in fields)


def encode_field(path: str, value: Field) -> bytes:
    name = path.encode()
    if isinstance(value, Tensor):
        return _head(name, 0, value, 0) + _data(value)
    if isinstance(value, Ragged):
        return _head(name, 1, value.values, len(value)) + _data(value.lengths) + _data(value.values)
    head = _head(name, 2, value.values, len(value), value.height)
    return head + _data(value.items.lengths) + _data(value.items.values) + _data(value.values)


def _head(name: bytes, kind: int, x: Tensor, lists: int, height: int = 0) -> bytes:
    shape = struct.pack(f"<{x.dim()}I", *x.shape)
    return FIELD.pack(len(name), kind, WIRE[x.dtype][0], x.dim(), lists, height) + name + shape


def _data(x: Tensor) -> bytes:
    if x.dtype == torch.int64 and x.numel() and max(int(x.max()), ~int(x.min())) > 0x7FFFFFFF:
        raise ValueError("an integer over 32 bits does not fit into a message; send it in parts")
    return x.detach().cpu().contiguous().numpy().astype(WIRE[x.dtype][1]).tobytes()


class _Reader:
    def __init__(self, data: bytes, limit: int) -> None:
        self.data, self.limit, self.at = memoryview(data), limit, 0

    def take(self, n: int) -> memoryview:
        if n < 0 or self.at + n > len(self.data):
            raise Malformed("message ends too early")
        part = self.data[self.at : self.at + n]
        self.at += n
        return part

    def unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def tensor(self, code: int, shape: tuple[int, ...]) -> Tensor:
        if code not in TORCH:
            raise Malformed(f"unknown dtype {code}")
        dtype, wire = TORCH[code]
        if prod(max(size, 1) for size in shape) > self.limit:
            raise Malformed("a row larger than any message")  # also where there are no rows
        raw = self.take(prod(shape) * np.dtype(wire).itemsize)
        return torch.from_numpy(np.frombuffer(raw, dtype=wire).reshape(shape).copy()).to(dtype)


def decode(data: bytes, limit: int = 1 << 30) -> tuple[Envelope, list[tuple[str, Field]]]:
    """The envelope and the fields, or `Malformed`."""
    if len(data) > limit:
        raise Malformed(f"message of {len(data)} bytes is over the limit of {limit}")
    reader = _Reader(data, limit)
    magic, version, step, run, round, client, count = HEADER.unpack(reader.take(HEADER.size))
    if magic != MAGIC or version != VERSION:
        raise Malformed("not a message of this version")
    if step >= len(STEPS):
        raise Malformed("unknown step")
    fields = [_decode_field(reader) for _ in range(count)]
    if reader.at != len(data):
        raise Malformed("bytes left over")
    if len({path for path, _ in fields}) != count:
        raise Malformed("a field is there twice")
    return Envelope(STEPS[step], run, round, client), fields


def _decode_field(reader: _Reader) -> tuple[str, Field]:
    length, kind, code, dims, lists, height = FIELD.unpack(reader.take(FIELD.size))
    if dims > MAX_DIMS or kind >= len(KINDS):
        raise Malformed("a field of unknown form")
    try:
        path = bytes(reader.take(length)).decode()
    except UnicodeDecodeError as error:
        raise Malformed("a field's name is no text") from error
    shape = reader.unpack(f"<{dims}I")
    if kind == 0:
        return path, reader.tensor(code, shape)
    lengths = reader.tensor(0, (lists,))
    if not shape or bool((lengths < 0).any()) or int(lengths.sum()) != shape[0]:
        raise Malformed("lists that do not add up")
    if kind == 1:
        return path, Ragged(reader.tensor(code, shape), offsets_of(lengths))
    items = Ragged(reader.tensor(0, (shape[0],)), offsets_of(lengths))
    if bool(((items.values < 0) | (items.values >= height)).any()):
        raise Malformed("an item id outside the catalogue")
    if len((items.owner * height + items.values).unique()) != len(items.values):
        raise Malformed("an item is there twice")
    return path, Rows(items, reader.tensor(code, shape), height)


def encode_upload(envelope: Envelope, upload: Upload) -> bytes:
    return encode(envelope, upload_fields(upload))


def decode_upload(data: bytes, limit: int = 1 << 30) -> tuple[Envelope, Upload]:
    envelope, fields = decode(data, limit)
    fields_by_kind: dict[str, FieldDict] = {}
    weight = torch.ones(1)
    for path, value in fields:
        kind, _, name = path.partition("/")
        if path == "weight" and isinstance(value, Tensor) and value.shape == (1,):
            weight = value
        elif path == "weight" or not name or not _single(value):
            raise Malformed(f"{path} is not one client's")
        else:
            fields_by_kind.setdefault(kind, {})[name] = value
    update, model = fields_by_kind.pop("update", {}), fields_by_kind.pop("model", {})
    return envelope, Upload(torch.tensor([envelope.client]), weight, update, model, fields_by_kind)


def _single(value: Field) -> bool:
    return len(value) == 1 if not isinstance(value, Tensor) else value.shape[:1] == (1,)


def encode_download(envelope: Envelope, download: Download) -> bytes:
    return encode(envelope, list(download_fields(download)))


def download_fields(download: Download) -> Iterator[tuple[str, Field]]:
    for name, sent in (("", download.public), *download.extra.items()):
        yield from ((f"shared/{name}/{k}", v) for k, v in sent.shared.items())
        yield from ((f"each/{name}/{k}", v) for k, v in sent.each.items())


def decode_download(data: bytes, limit: int = 1 << 30) -> tuple[Envelope, Download]:
    envelope, fields = decode(data, limit)
    sents: dict[str, Sent] = {}
    for path, value in fields:
        kind, _, rest = path.partition("/")
        part, _, name = rest.partition("/")
        if kind not in ("shared", "each") or not name or (kind == "each" and not _single(value)):
            raise Malformed(f"{path} is no field of a download")
        sent = sents.setdefault(part, Sent({}, {}))
        (sent.shared if kind == "shared" else sent.each)[name] = value
    return envelope, Download(sents.pop("", Sent()), sents)
