"""Messages as bytes: what goes in comes out, sizes are known before, and nothing else is taken."""

import struct
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covey.core.messages import Download, Sent, Upload
from covey.core.ragged import Field, Ragged, Rows
from covey.engine.fleet import codec
from covey.engine.fleet.codec import (
    FIELD,
    HEADER,
    Envelope,
    Malformed,
    decode,
    decode_download,
    decode_upload,
    encode,
    encode_download,
    encode_field,
    encode_upload,
    field_bytes,
    rows_bytes,
    upload_fields,
)
from covey.engine.fleet.meter import Meter
from covey.testing.compare import differences

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENVELOPE = Envelope("train", 2**63, 17, 5)
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool])


@st.composite
def tensors(draw: Any, *lead: int) -> torch.Tensor:
    shape = (*lead, *draw(st.lists(st.integers(0, 3), max_size=3)))
    dtype = draw(DTYPES)
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) * 37 % 11 - 5
    return numbers.to(dtype) / 3 if dtype.is_floating_point else numbers.to(dtype)


@st.composite
def raggeds(draw: Any, clients: int) -> Ragged:
    lengths = draw(st.lists(st.integers(0, 3), min_size=clients, max_size=clients))
    values = draw(tensors(sum(lengths)))
    return Ragged(values, codec.offsets_of(torch.tensor(lengths)))


@st.composite
def rowses(draw: Any, clients: int) -> Rows:
    lists = [sorted(draw(st.frozensets(st.integers(0, 6), max_size=4))) for _ in range(clients)]
    return Rows(Ragged.of(lists), draw(tensors(sum(map(len, lists)))), 7)


def fields(clients: int = 1) -> st.SearchStrategy[Field]:
    return st.one_of(tensors(clients), raggeds(clients), rowses(clients))


@st.composite
def uploads(draw: Any, clients: int = 1) -> Upload:
    names = st.dictionaries(st.sampled_from(["a", "b", "a/b"]), fields(clients), max_size=2)
    some = st.dictionaries(st.sampled_from(["a", "b"]), fields(clients), min_size=1, max_size=2)
    weight = torch.tensor(
        draw(st.lists(st.sampled_from([1.0, 2.5]), min_size=clients, max_size=clients))
    )
    extra = draw(st.dictionaries(st.sampled_from(["one", "two"]), some, max_size=2))
    return Upload(torch.arange(clients) + 5, weight, draw(names), draw(names), extra)


def same(a: Any, b: Any) -> bool:
    return not list(differences(a, b))


@given(uploads())
@QUICK
def test_an_upload_comes_out_as_it_went_in(upload: Upload) -> None:
    envelope, again = decode_upload(encode_upload(ENVELOPE, upload))
    assert envelope == ENVELOPE and same(again, upload)


@given(
    st.dictionaries(
        st.sampled_from(["", "one", "two"]), st.tuples(tensors(), fields(2), fields(1)), max_size=3
    )
)
@QUICK
def test_a_download_comes_out_as_it_went_in(parts: dict[str, tuple[Field, Field, Field]]) -> None:
    sents = {k: Sent({"a": a, "b": b}, {"c": c}) for k, (a, b, c) in parts.items()}
    download = Download(sents.pop("", Sent()), sents)
    envelope, again = decode_download(encode_download(ENVELOPE, download))
    assert envelope == ENVELOPE and same(again, download)


@given(uploads(3))
@QUICK
def test_sizes_are_known_before_encoding(upload: Upload) -> None:
    alone = [upload.take(torch.tensor([c])) for c in range(3)]
    meter = Meter(10)
    meter.received("train", upload)
    assert meter.up == sum(len(encode_upload(ENVELOPE, one)) for one in alone)


@given(tensors(), fields(2), fields(4))
@QUICK
def test_sizes_of_downloads_are_known_before_encoding(a: Field, b: Field, c: Field) -> None:
    download = Download(Sent({"a": a}), {"m": Sent({"b": b}, {"c": c})})
    meter = Meter(4)
    meter.sent(download, 4)
    assert meter.down == sum(
        len(encode_download(ENVELOPE, download.take(torch.tensor([k])))) for k in range(4)
    )


def test_rows_that_were_summed_have_the_size_of_single_messages() -> None:
    rows = Rows(Ragged.of([[1, 2], [], [4]]), torch.ones(3, 5), 9)
    assert rows_bytes("update/items", 3, 3, torch.ones(5)) == field_bytes("update/items", rows)


MESSAGE = encode_upload(
    ENVELOPE,
    Upload(
        torch.tensor([5]),
        torch.tensor([2.0]),
        {
            "items": Rows(Ragged.of([[0, 3, 4]]), torch.rand(3, 2), 6),
            "bias": torch.rand(1, 2).double(),
        },
        {"flags": torch.tensor([[True, False]])},
        {"one": {"list": Ragged.of([[7, 8]])}},
    ),
)


def test_every_truncation_is_refused() -> None:
    for cut in range(len(MESSAGE)):
        with pytest.raises(Malformed):
            decode_upload(MESSAGE[:cut])
    with pytest.raises(Malformed):
        decode_upload(MESSAGE + b"\0")


def small(message: bytes) -> bool:
    """Decodes to something no larger than it came, or is refused; never anything else."""
    for reader in (decode_upload, decode_download):
        try:
            _, parsed = reader(message, 1 << 20)
        except Malformed:
            continue
        held = (
            [*upload_fields(parsed)]
            if isinstance(parsed, Upload)
            else [*codec.download_fields(parsed)]
        )
        size = sum((v if isinstance(v, torch.Tensor) else v.values).numel() for _, v in held)
        assert size <= len(message)
    return True


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32, 64, 128, 255])
def test_a_flipped_byte_is_refused_or_harmless(bits: int) -> None:
    for place in range(len(MESSAGE)):
        assert small(MESSAGE[:place] + bytes([MESSAGE[place] ^ bits]) + MESSAGE[place + 1 :])


@given(
    st.lists(
        st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), min_size=2, max_size=6
    )
)
@settings(max_examples=300, deadline=None)
def test_several_other_bytes_are_refused_or_harmless(changes: list[tuple[int, int]]) -> None:
    message = bytearray(MESSAGE)
    for place, value in changes:
        message[place] = value
    assert small(bytes(message))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_noise_is_refused_or_harmless(noise: bytes) -> None:
    assert small(noise)
    head = HEADER.pack(codec.MAGIC, codec.VERSION, 3, 1, 1, 5, 1)
    assert small(head + noise)


def forged(
    kind: int,
    code: int,
    lists: int,
    height: int,
    shape: tuple[int, ...],
    data: bytes,
    path: bytes = b"update/x",
) -> bytes:
    head = HEADER.pack(codec.MAGIC, codec.VERSION, 3, 1, 1, 5, 1)
    field = FIELD.pack(len(path), kind, code, len(shape), lists, height)
    return head + field + path + struct.pack(f"<{len(shape)}I", *shape) + data


HUGE = 2**32 - 1


FORGED = [
    forged(0, 1, 0, 0, (HUGE, HUGE, HUGE, HUGE), b""),
    forged(0, 1, 0, 0, (1, HUGE), b"\0" * 64),
    forged(0, 1, 0, 0, (0, HUGE, HUGE, HUGE), b""),
    forged(0, 1, 0, 0, (1, 0, HUGE, HUGE), b""),
    forged(0, 1, 0, 0, (), b"\0" * 4),  # no leading C
    forged(0, 9, 0, 0, (1,), b"\0" * 8),  # unknown type
    forged(7, 1, 0, 0, (1,), b"\0" * 4),  # unknown kind
    forged(0, 1, 0, 0, (1, 1, 1, 1, 1), b"\0" * 4),  # too many dimensions
    forged(1, 1, HUGE, 0, (1,), b"\0" * 8),
    forged(1, 1, 1, 0, (2,), struct.pack("<i2f", 1, 0, 0)),  # lists do not add up
    forged(1, 1, 2, 0, (1,), struct.pack("<2if", 2, -1, 0)),
    forged(1, 1, 2, 0, (1,), struct.pack("<2if", 1, 0, 0)),  # two clients in one message
    forged(2, 1, 1, 3, (1, 1), struct.pack("<iif", 1, 3, 0)),  # item 3 of 3
    forged(2, 1, 1, 3, (1, 1), struct.pack("<iif", 1, -1, 0)),
    forged(2, 1, 1, 3, (2, 1), struct.pack("<iiiff", 2, 1, 1, 0, 0)),  # the same item twice
    forged(0, 1, 0, 0, (1,), b"\0" * 4, b"update"),  # no name
    forged(0, 1, 0, 0, (1,), b"\0" * 4, b"update/\xff"),  # no text
    forged(0, 1, 0, 0, (2,), b"\0" * 8, b"weight"),
]


@pytest.mark.parametrize("message", FORGED, ids=range(len(FORGED)))
def test_forged_fields_are_refused(message: bytes) -> None:
    with pytest.raises(Malformed):
        decode_upload(message)
    assert small(message)


def test_a_field_that_stands_twice_is_refused() -> None:
    field = encode_field("update/x", torch.ones(1))
    head = HEADER.pack(codec.MAGIC, codec.VERSION, 3, 1, 1, 5, 2)
    with pytest.raises(Malformed, match="twice"):
        decode(head + field + field)


def test_other_versions_and_steps_are_refused() -> None:
    good = encode_upload(ENVELOPE, Upload(torch.tensor([5]), torch.ones(1)))
    for place, value in ((0, 0), (4, 99), (5, 99)):
        with pytest.raises(Malformed):
            decode(good[:place] + bytes([value]) + good[place + 1 :])


def test_messages_over_the_limit_are_refused() -> None:
    message = encode(ENVELOPE, [("update/x", torch.ones(1, 100))])
    decode(message, len(message))
    with pytest.raises(Malformed, match="limit"):
        decode(message, len(message) - 1)


def test_each_field_of_a_download_is_for_one_client() -> None:
    with pytest.raises(Malformed):
        decode_download(encode(ENVELOPE, [("each/m/x", torch.ones(2))]))
    with pytest.raises(Malformed):
        decode_download(encode(ENVELOPE, [("else/m/x", torch.ones(2))]))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integers_that_do_not_fit_are_an_error_and_not_another_number(value: int) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        encode_field("m/x", torch.tensor([value]))


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_integers_that_just_fit(value: int) -> None:
    _, fields = decode(encode(ENVELOPE, [("m/x", torch.tensor([value]))]))
    assert fields[0][1].tolist() == [value]  # type: ignore[union-attr]
