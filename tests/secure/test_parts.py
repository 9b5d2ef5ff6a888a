"""Fixed point, shares, graph and keys, each by itself."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.core.errors import CoveyError
from covey.engine.secure import keys, messages, shamir
from covey.engine.secure.fixed_point import Fixed, OutOfRange
from covey.engine.secure.graph import graph_of
from covey.engine.secure.settings import FleetConfig, SumFailed

CONTEXT = messages.context_of(1, 2, "train")


def graph(n: int, neighbours: int = 16, holders: int = 128, context: bytes = CONTEXT):
    roster = np.arange(n, dtype="<i8").tobytes()
    return graph_of(context, roster, FleetConfig(neighbours=neighbours, holders=holders))


def test_fixed_point_by_hand() -> None:
    fixed = Fixed(32, 4.0, 4)  # 31 bits, 4 spare, 4 for 16 = 4 clients of 4
    assert fixed.fraction == 23
    assert fixed.encode(np.array([1.0, -0.5, 2.0**-23])).tolist() == [2**23, 2**32 - 2**22, 1]
    total = fixed.encode(np.array([1.5])) + fixed.encode(np.array([-3.75]))
    assert fixed.decode(total, 2).tolist() == [-2.25]


@given(
    st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=20),
    st.sampled_from([32, 64]),
)
@settings(max_examples=60, deadline=None)
def test_sums_are_right_to_rounding(rows: list[list[float]], bits: int) -> None:
    fixed = Fixed(bits, 50.0, len(rows))
    total = np.zeros(3, fixed.dtype)
    for row in rows:
        total += fixed.encode(np.array(row))
    exact = np.array(rows).sum(0)
    assert (
        np.abs(fixed.decode(total, len(rows)) - exact).max()
        <= len(rows) * 2.0 ** -(fixed.fraction + 1) + 1e-12
    )


@pytest.mark.parametrize("bad", [4.001, -4.001, np.inf, -np.inf, np.nan])
def test_what_does_not_fit_is_refused(bad: float) -> None:
    with pytest.raises(OutOfRange, match="outside -4 to 4"):
        Fixed(64, 4.0, 10).encode(np.array([0.0, bad]))


def test_a_total_that_cannot_be() -> None:
    fixed = Fixed(64, 4.0, 10)
    with pytest.raises(SumFailed, match="tampered"):
        fixed.decode(fixed.encode(np.array([4.0])) * np.uint64(3), 2)


def test_too_coarse_a_step() -> None:
    Fixed(64, 4096.0, 10_000).check()
    with pytest.raises(
        CoveyError, match=r"leaves 7 bits .* lower fleet.range, or set fleet.bits = 64"
    ):
        Fixed(32, 4096.0, 256).check()


@given(st.integers(2, 40), st.data())
@settings(max_examples=40, deadline=None)
def test_any_t_shares_give_the_secret(n: int, data: st.DataObject) -> None:
    t = data.draw(st.integers(1, n))
    secrets = [data.draw(st.binary(min_size=32, max_size=32)) for _ in range(2)]
    shares = shamir.split(secrets, n, t)
    points = data.draw(st.permutations(range(1, n + 1)))[:t]
    for i, secret in enumerate(secrets):
        assert shamir.join(tuple(points), shares[np.array(points) - 1, i]) == secret


def test_shares_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """f(x) = 5 + 2 x in every limb: 7, 9, 11; and fewer than t shares fit every secret."""
    monkeypatch.setattr(
        shamir.secrets, "token_bytes", lambda n: np.full(n // 8, 2, "<u8").tobytes()
    )
    secret = np.full(16, 5, "<u2").tobytes()
    shares = shamir.split([secret], 3, 2)
    assert shares[:, 0, 0].tolist() == [7, 9, 11]
    assert shamir.join((1, 3), shares[[0, 2], 0]) == secret
    other = shares[[0, 2], 0].copy()
    other[1] = 7  # 7 at 1 and 7 at 3: as well the secret 7
    assert shamir.join((1, 3), other) == np.full(16, 7, "<u2").tobytes()


def test_one_share_too_few_gives_nothing() -> None:
    secret = bytes(range(32))
    shares = shamir.split([secret], 9, 5)[:4, 0]
    with pytest.raises(shamir.BadShares):
        shamir.join((1, 2, 3, 4), shares)


@pytest.mark.parametrize("n", [3, 4, 5, 17, 18, 129, 130, 256])
def test_the_graph_is_regular_and_mutual(n: int) -> None:
    g = graph(n)
    for table, many in ((g.partners, 16), (g.holders, 128)):
        assert table.shape == (n, min(many, n - 1))
        pairs = {(i, int(j)) for i in range(n) for j in table[i]}
        assert len(pairs) == table.size and all(i != j and (j, i) in pairs for i, j in pairs)
    where = g.columns()
    assert all(
        g.holders[g.holders[i, j], where[i, j]] == i
        for i in range(n)
        for j in range(g.holders.shape[1])
    )
    assert g.connected(np.ones(n, bool))


def test_the_graph_depends_on_the_sum_and_hangs_together() -> None:
    assert (
        graph(64).partners != graph(64, context=messages.context_of(1, 3, "train")).partners
    ).any()
    ring = graph(8, neighbours=2, holders=2)
    first = ring.partners[0]
    alive = np.ones(8, bool)
    alive[first] = False  # both of its partners are gone, and it is left alone
    assert not ring.connected(alive)
    assert not ring.connected(np.zeros(8, bool))


def test_keys_agree_and_packets_are_bound_to_sender_and_receiver() -> None:
    one, two = keys.Pair(), keys.Pair()
    key = one.agree(two.public, CONTEXT)
    assert (
        key
        == two.agree(one.public, CONTEXT)
        != one.agree(two.public, messages.context_of(1, 3, "train"))
    )
    assert keys.Pair(one.secret).public == one.public
    packet = keys.seal(key, 1, 2, b"share")
    assert keys.unseal(key, 1, 2, packet) == b"share"
    for sender, receiver, sent in (
        (2, 1, packet),
        (1, 2, packet[:-1] + bytes([packet[-1] ^ 1])),
        (1, 2, b""),
    ):
        with pytest.raises(keys.BadPacket):
            keys.unseal(key, sender, receiver, sent)


def test_a_key_of_low_order() -> None:
    with pytest.raises(keys.BadKey):
        keys.Pair().agree(bytes(32), CONTEXT)


def test_masks_are_uniform_and_reproducible() -> None:
    x = np.zeros(100_000, "<u8")
    keys.mask(x, b"k" * 32)
    whole = (
        Cipher(algorithms.AES(b"k" * 32), modes.CTR(bytes(16))).encryptor().update(bytes(x.nbytes))
    )
    assert x.tobytes() == whole  # in pieces as in one
    y = x.copy()
    keys.mask(y, b"k" * 32, minus=True)
    assert not y.any()
    assert abs(float((x / 2.0**64).mean()) - 0.5) < 0.005 and len(np.unique(x)) == len(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbours": 3}, "even number"),
        ({"holders": 0}, "even number"),
        ({"threshold": 0.4}, "lying server"),
        ({"threshold": 1.0}, "below 1"),
        ({"range": 0.0}, "over 0"),
        ({"range": float("inf")}, "finite"),
    ],
)
def test_options_out_of_bounds(options: dict[str, float], message: str) -> None:
    with pytest.raises(CoveyError, match=message):
        FleetConfig(**options)  # type: ignore[arg-type]
