"""Ciphertexts: what they stand for, what shows a change, and what the server can do with them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from covey.core import CoveyError
from covey.engine.encrypted import ckks
from covey.engine.encrypted.ckks import SERVER, TABLE, TAGS, BadMessage, Message, Public, Secret
from covey.engine.secure.fixed_point import OutOfRange

ts = pytest.importorskip("tenseal")
LIKE = {"items": torch.zeros(90, 50), "bias": torch.zeros(7, dtype=torch.float64)}
NAME = bytes(range(16))  # of a sum


def draw(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {k: torch.randn(v.shape, generator=generator).to(v) for k, v in LIKE.items()}


def halves(scaled: bool = False) -> tuple[Secret, Public]:
    clients = Secret.load(Secret.make(scaled), LIKE)
    return clients, Public(clients.public, clients.many)


CLIENTS, SERVERS = halves()


def sealed(clients: Secret = CLIENTS, seed: int = 0) -> bytes:
    return clients.seal(draw(seed), TABLE, SERVER)


def expect_refused(message: str, data: bytes) -> None:
    with pytest.raises(BadMessage, match=message):
        CLIENTS.open(data)


def test_blocks_hold_many_numbers() -> None:
    assert CLIENTS.shape == (3, 2048)  # 4,507 numbers, 2,044 in a block
    assert halves(scaled=True)[1].shape == (2, 4096)
    assert len(sealed()) < 3 * 64_000


@pytest.mark.parametrize("scaled", [False, True])
def test_parameters_come_back_in_shape_and_type(scaled: bool) -> None:
    clients, _ = halves(scaled)
    for name, value in clients.open(sealed(clients)).items():
        torch.testing.assert_close(value, draw(0)[name], rtol=0, atol=1e-6)


def test_a_sum_of_many() -> None:
    """(table + a + b) on ciphertexts, by a server without secret key."""
    total = None
    for client in (4, 9):
        data = CLIENTS.seal(draw(client), NAME, client, limit=20)
        total = SERVERS.added(total, SERVERS.decoded(data, NAME, client))
    assert total is not None and total.summed == 2
    table = SERVERS.added(SERVERS.decoded(sealed()), total)
    found = CLIENTS.open(SERVERS.encoded(table))
    for name, value in found.items():
        want = draw(0)[name] + draw(4)[name] + draw(9)[name]
        torch.testing.assert_close(value, want, rtol=0, atol=1e-6)


def test_a_mean_in_many_rounds() -> None:
    """The factor is applied to fresh sums only, so the levels of a ciphertext suffice for ever."""
    clients, server = halves(scaled=True)
    table, size = server.decoded(sealed(clients)), []
    update = server.decoded(clients.seal(draw(1), NAME, 3), NAME, 3)
    for _ in range(20):
        table = server.decoded(server.encoded(server.added(table, update, 1 / 3)))
        size.append(len(server.encoded(table)))
    for name, value in clients.open(server.encoded(table)).items():
        want = draw(0)[name] + 20 / 3 * draw(1)[name]
        torch.testing.assert_close(value, want, rtol=0, atol=1e-5)
    assert max(size) < 1.01 * min(size) < len(sealed(clients))


def test_the_server_holds_no_secret_key() -> None:
    assert not SERVERS.context.has_secret_key() and CLIENTS.context.has_secret_key()
    with pytest.raises(ValueError, match="secret_key"):
        SERVERS.decoded(sealed()).blocks[0].decrypt()
    assert not ts.context_from(SERVERS.public).has_secret_key()
    assert not hasattr(SERVERS, "open") and set(vars(SERVERS)) == {
        *("public", "many"),
        *("context", "shape"),  # computed from these
    }


def test_ciphertexts_are_fresh() -> None:
    one, two = sealed(), sealed()
    assert one != two
    assert b"".join(b.serialize() for b in SERVERS.decoded(one).blocks) not in two


@pytest.mark.parametrize("keep", [0, 31, 32, 60, 5000, -1])
def test_cut_off(keep: int) -> None:
    expect_refused("cut off or damaged; send it again", sealed()[:keep])


def test_damage_shows_in_the_hash() -> None:
    data = bytearray(sealed())
    data[50_000] ^= 1
    expect_refused("cut off or damaged", bytes(data))


def changed(blocks: list[object]) -> bytes:
    """A message with a valid hash, as somebody makes it who changes it on purpose."""
    return SERVERS.encoded(Message(1, blocks))


def test_a_change_on_purpose_fails_the_tags() -> None:
    """The server adds 0.1 to one number, which needs the public key only."""
    blocks = SERVERS.decoded(sealed()).blocks
    bump = np.zeros(2048)
    bump[17] = 0.1
    other = ts.ckks_vector(SERVERS.context, bump)
    expect_refused("fail the clients' check", changed([blocks[0] + other, *blocks[1:]]))


def test_a_message_of_the_server_s_own_fails_the_tags() -> None:
    made = [ts.ckks_vector(SERVERS.context, np.full(2048, 0.5)) for _ in range(3)]
    expect_refused("fail the clients' check", changed(made))


def test_blocks_in_another_order_fail_the_tags() -> None:
    blocks = SERVERS.decoded(sealed()).blocks
    expect_refused("fail the clients' check", changed([blocks[1], blocks[0], blocks[2]]))


def test_flipped_bits_that_tenseal_takes_fail_the_tags() -> None:
    """TenSEAL reads some damaged ciphertexts without complaint; they decrypt to garbage."""
    blocks, taken = SERVERS.decoded(sealed()).blocks, 0
    body = blocks[0].serialize()
    for at in range(3000, 60_000, 3001):
        bad = body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]
        try:
            block = ts.ckks_vector_from(SERVERS.context, bad)
        except (ValueError, RuntimeError):
            continue
        taken += 1
        expect_refused("fail the clients' check", changed([block, *blocks[1:]]))
    assert taken


def test_what_the_tags_do_not_show() -> None:
    """The documented limits: the server may repeat contributions, and go back to an old table."""
    old = sealed()
    message = SERVERS.decoded(old)
    twice = CLIENTS.open(SERVERS.encoded(SERVERS.added(message, message)))
    torch.testing.assert_close(twice["items"], 2 * draw(0)["items"], rtol=0, atol=1e-6)
    CLIENTS.open(old)


def test_another_key() -> None:
    other, _ = halves()
    expect_refused("were made with another key; all clients", sealed(other))
    # With a header of this key, it decrypts to garbage.
    expect_refused("fail the clients' check", changed(other.decoded(sealed(other)).blocks))


def test_other_parameters() -> None:
    other, _ = halves(scaled=True)
    blocks = [other.decoded(sealed(other)).blocks[0]] * 3
    expect_refused("cannot be read|other parameters", changed(blocks))
    finer = ts.ckks_vector(CLIENTS.context, np.zeros(2048), 2.0**41)
    expect_refused("other parameters", changed([finer] * 3))
    short = ts.ckks_vector(CLIENTS.context, np.zeros(5))
    expect_refused("other parameters", changed([short] * 3))
    expect_refused("another sum, sender or shape", changed(blocks[:2]))


def test_a_contribution_that_was_multiplied_before() -> None:
    """It would have no level left for the server's factor."""
    clients, server = halves(scaled=True)
    message = server.decoded(clients.seal(draw(0), NAME, 4), NAME, 4)
    used = server.encoded(message._replace(blocks=[b * 0.5 for b in message.blocks]), NAME, 4)
    with pytest.raises(BadMessage, match="other parameters"):
        server.decoded(used, NAME, 4)


@pytest.mark.parametrize(("name", "sender"), [(NAME, 5), (TABLE, 4), (TABLE, SERVER)])
def test_of_another_sum_or_sender(name: bytes, sender: int) -> None:
    data = CLIENTS.seal(draw(0), name, sender)
    with pytest.raises(BadMessage, match="another sum, sender or shape"):
        SERVERS.decoded(data, NAME, 4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 21.0])
def test_numbers_out_of_range_are_not_sent(bad: float) -> None:
    fields = draw(0)
    fields["items"][3, 4] = bad
    with pytest.raises(OutOfRange):
        CLIENTS.seal(fields, NAME, 1, limit=20)


def test_other_shapes_are_not_sent() -> None:
    with pytest.raises(OutOfRange, match="other shapes"):
        CLIENTS.seal({**draw(0), "bias": torch.zeros(8)}, NAME, 1)


def test_a_table_that_left_the_range() -> None:
    message = SERVERS.decoded(
        CLIENTS.seal({k: v + 4000 for k, v in LIKE.items()}, TABLE, SERVER, 1e6)
    )
    with pytest.raises(CoveyError, match="left the range -4096 to 4096"):
        CLIENTS.open(SERVERS.encoded(SERVERS.added(message, message)))


def test_tags_are_what_they_say() -> None:
    """By hand: each tag is the weighted sum of its block, with weights that differ by block."""
    fields = draw(3)
    slot_BS = np.array([b.decrypt() for b in CLIENTS.decoded(sealed(seed=3)).blocks])
    flat = torch.cat([fields["items"].flatten().double(), fields["bias"]]).numpy()
    second = CLIENTS.weights[1] @ flat[2044:4088]
    assert slot_BS[1, -TAGS:] == pytest.approx(second, abs=1e-6)
    assert CLIENTS.weights.std() == pytest.approx(2044**-0.5, rel=0.02)
    assert not np.allclose(CLIENTS.weights[0], CLIENTS.weights[1])
    other = replace(CLIENTS, private=halves()[0].private)
    assert not np.allclose(other.weights, CLIENTS.weights)


def test_noise_of_large_sums_passes() -> None:
    """The tolerance is far above the noise, which grows with the root of the contributions."""
    message = SERVERS.decoded(CLIENTS.seal(LIKE, TABLE, SERVER))
    for _ in range(300):
        message = SERVERS.added(message, SERVERS.decoded(CLIENTS.seal(LIKE, TABLE, SERVER)))
    summed = CLIENTS.decoded(SERVERS.encoded(message))
    slot_BS = np.array([b.decrypt() for b in summed.blocks])
    off = CLIENTS._tags(slot_BS[:, :-TAGS]) - slot_BS[:, -TAGS:]
    assert 6 * off.std() * (1e6 / 301) ** 0.5 < ckks.TOLERANCE
