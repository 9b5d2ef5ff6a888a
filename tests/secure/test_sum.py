"""The protocol: drop-outs at every point, thresholds, and parties that deviate from it."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.engine.secure import keys, messages, shamir
from covey.engine.secure.graph import Graph
from covey.engine.secure.messages import KEYS, REVEAL, SHARES, VECTOR
from covey.engine.secure.party import KEY, PACKET_BYTES, SEED, Party, Refused
from covey.engine.secure.settings import FleetConfig, SumFailed
from secure_room import CONTEXT, Room, values

HEAD = messages.HEADER.size


def expect_sum(room: Room, ids: Iterable[int]) -> None:
    outcome, total = room.run()
    assert outcome.ids.tolist() == sorted(ids)
    np.testing.assert_allclose(total, room.sum_of(ids), atol=1e-9)


@pytest.mark.parametrize("bits", [32, 64])
def test_everybody_answers(bits: int) -> None:
    room = Room(values(12), FleetConfig(bits=bits, range=2.0, neighbours=4, holders=6))
    outcome, total = room.run()
    assert len(outcome.ids) == 12 and not room.server.flagged
    np.testing.assert_allclose(total, room.sum_of(room.values), atol=1e-9 if bits == 64 else 1e-5)


@given(st.integers(3, 16), st.data())
@settings(max_examples=25, deadline=None)
def test_whoever_drops_out_the_sum_is_that_of_the_rest_or_none(n: int, data: st.DataObject) -> None:
    room = Room(values(n), FleetConfig(neighbours=4, holders=16))
    room.gone = data.draw(
        st.dictionaries(st.sampled_from(list(room.values)), st.integers(KEYS, REVEAL), max_size=n)
    )
    roster = [c for c in room.values if room.gone.get(c, 9) > KEYS]
    left = [c for c in roster if room.gone.get(c, 9) > VECTOR]
    last = [c for c in left if room.gone.get(c, 9) > REVEAL]
    try:
        outcome, total = room.run()
    except SumFailed:
        least = room.config.least(n)  # of all that were asked
        t = room.config.shares(min(16, len(roster) - 1)) if len(roster) > 1 else 0
        assert (
            len(roster) < 3
            or len(left) < least
            or len(last) - 1 < t
            or room.config.neighbours < len(roster) - 1
        )
    else:
        assert outcome.ids.tolist() == sorted(left)
        np.testing.assert_allclose(total, room.sum_of(left), atol=1e-9)


@pytest.mark.parametrize("phase", [SHARES, VECTOR])
def test_below_the_threshold_nothing_is_opened(phase: int) -> None:
    room = Room(values(12))
    room.gone = dict.fromkeys(list(room.values)[:6], phase)  # 6 of 12 are left, 7 are needed
    with pytest.raises(SumFailed, match=r"6 of 12 clients .* a sum needs 7: no mask was opened"):
        room.run()
    assert REVEAL not in {phase for phase, _ in room.asked}


def test_too_few_to_open_the_masks() -> None:
    room = Room(values(12), FleetConfig(neighbours=4, holders=12))
    room.gone = dict.fromkeys(list(room.values)[:7], REVEAL)
    with pytest.raises(SumFailed, match=r"shares of client .* came; 6 are needed"):
        room.run()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_clients(n: int) -> None:
    room = Room({**values(3)})
    room.gone = dict.fromkeys(list(room.values)[n:], KEYS)
    with pytest.raises(SumFailed, match=f"{n} clients are too few"):
        room.run()


def test_a_client_that_contributes_twice_counts_once() -> None:
    room = Room(values(6))
    room.fault = lambda phase, client, reply: (
        [reply, reply] if client == 3 and phase == VECTOR else [reply]
    )
    expect_sum(room, room.values)
    assert room.server.flagged == {"replayed": [3]}


def test_a_client_cannot_be_asked_twice() -> None:
    room = Room(values(4))
    room.server.ids.append(3)
    with pytest.raises(SumFailed, match="asked twice"):
        room.run()


def test_a_value_out_of_range_is_not_sent() -> None:
    room = Room(values(8), FleetConfig(range=3.0, neighbours=4, holders=6))
    room.values[6][2] = 3.5
    room.values[9][0] = np.nan
    expect_sum(room, set(room.values) - {6, 9})


def other_round(client: int, reply: bytes) -> bytes:
    return messages.frame(VECTOR, messages.context_of(7, 2, "train"), client, reply[HEAD:])


@pytest.mark.parametrize(
    ("phase", "change", "flagged"),
    [
        (KEYS, lambda reply: reply[:10], {"malformed": [-1]}),  # no header
        (KEYS, lambda reply: reply + b"\0", {"malformed": [6]}),
        (SHARES, lambda reply: reply[:-1], {"malformed": [6]}),
        (VECTOR, lambda reply: reply[:-1], {"malformed": [6]}),
        (
            VECTOR,
            lambda reply: messages.frame(VECTOR, CONTEXT, 99, reply[HEAD:]),
            {"misaddressed": [99]},
        ),
        (
            VECTOR,
            lambda reply: messages.frame(SHARES, CONTEXT, 6, reply[HEAD:]),
            {"misaddressed": [6]},
        ),
        (VECTOR, lambda reply: other_round(6, reply), {"malformed": [-1]}),
    ],
)
def test_a_message_that_is_none_is_left_out(
    phase: int, change: Callable[[bytes], bytes], flagged: dict[str, list[int]]
) -> None:
    room = Room(values(8))
    room.fault = lambda its, client, reply: [
        change(reply) if (its, client) == (phase, 6) else reply
    ]
    expect_sum(room, set(room.values) - {6})
    assert room.server.flagged == flagged


def test_a_bad_public_key_is_left_out() -> None:
    room = Room(values(6))
    room.fault = lambda phase, client, reply: (
        [reply[:HEAD] + bytes(64)] if (phase, client) == (KEYS, 6) else [reply]
    )
    expect_sum(room, set(room.values) - {6})
    assert room.server.flagged == {"bad key": [6]}


def changed(reply: bytes, at: int) -> bytes:
    return reply[:at] + bytes([reply[at] ^ 1]) + reply[at + 1 :]


def test_a_tampered_packet_is_flagged_and_the_rest_of_the_shares_suffice() -> None:
    room = Room(values(12))
    room.fault = lambda phase, client, reply: [
        changed(reply, HEAD) if (phase, client) == (SHARES, 6) else reply
    ]
    room.gone = {6: VECTOR}  # and its key is needed
    expect_sum(room, set(room.values) - {6})
    assert room.server.flagged == {"packet not opened": [6]}


def test_false_shares_are_flagged_by_their_hashes() -> None:
    room = Room(values(12))
    room.fault = lambda phase, client, reply: [
        changed(reply, len(reply) - 1) if (phase, client) == (REVEAL, 6) else reply
    ]
    expect_sum(room, room.values)
    assert room.server.flagged == {"false share": [6]}


def test_too_many_false_shares() -> None:
    room = Room(values(12))
    room.fault = lambda phase, client, reply: [
        reply[:HEAD] + bytes([SEED] * 8) + bytes(8 * shamir.SHARE_BYTES)
        if phase == REVEAL and client < 24
        else reply
    ]
    with pytest.raises(SumFailed, match="came; 5 are needed"):
        room.run()
    assert set(room.server.flagged["false share"]) == set(range(0, 24, 3))


def test_shares_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that deals out shares which hash well and belong to no secret."""
    room = Room(values(12))
    true = shamir.split
    liar = room.parties[6]
    monkeypatch.setattr(
        shamir, "split", lambda s, n, t: true([bytes(32)] * 2 if s[0] == liar.seed else s, n, t)
    )
    with pytest.raises(SumFailed, match="client 6 dealt out shares of no secret"):
        room.run()
    assert room.server.flagged == {"false shares dealt out": [6]}


@pytest.mark.parametrize("what", ["own", "common"])
def test_a_mask_that_is_not_its_own_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(values(8))
    liar = room.parties[6]
    masked = liar._masked

    def tampered() -> np.ndarray:
        if what == "own":
            liar.seed = bytes(32)
        else:
            liar.mask_keys = {partner: bytes(32) for partner in liar.mask_keys}
        return masked()

    monkeypatch.setattr(liar, "_masked", tampered)
    with pytest.raises(SumFailed, match="masks are left in the total"):
        room.run()


def test_one_number_changed_on_the_way() -> None:
    """High bits show in the total; low ones look like an ordinary contribution."""
    room = Room(values(8))
    room.fault = lambda phase, client, reply: [
        reply[:-1] + bytes([reply[-1] ^ 0x40]) if (phase, client) == (VECTOR, 6) else reply
    ]
    with pytest.raises(SumFailed, match="larger than its clients may add up to"):
        room.run()


class Alone:
    """A party, and a server that may lie to it."""

    def __init__(self, n: int = 8, upto: int = REVEAL) -> None:
        self.room = Room(values(n))
        self.requests: dict[int, bytes] = {}
        self.party: Party = self.room.parties[6]
        handle = self.party.handle

        def noted(request: bytes) -> bytes:
            self.requests[messages.unframe(request, CONTEXT)[0]] = request
            return handle(request) if len(self.requests) <= upto else b""

        self.party.handle = noted  # type: ignore[method-assign]
        with suppress(SumFailed):
            self.room.run()
        self.party.handle = handle  # type: ignore[method-assign]

    def expect_refusal(self, phase: int, body: bytes, message: str) -> None:
        with pytest.raises(Refused, match=message):
            self.party.handle(messages.frame(phase, CONTEXT, 6, body))


def test_the_same_request_has_the_same_answer_and_another_has_none() -> None:
    alone = Alone(upto=9)
    for phase, request in alone.requests.items():
        assert alone.party.handle(request) == alone.party.answered[phase][1]
    one_less = np.ones(8, bool)
    one_less[0] = False  # now the other share of client 0 is asked for
    alone.expect_refusal(REVEAL, messages.bits_of(one_less), "another request of this phase")


def test_requests_out_of_order_or_for_others() -> None:
    alone = Alone(upto=SHARES)
    alone.expect_refusal(REVEAL, messages.bits_of(np.ones(8, bool)), "out of order")
    with pytest.raises(Refused, match="not addressed"):
        alone.party.handle(messages.frame(SHARES, CONTEXT, 9, b""))
    with pytest.raises(messages.Malformed):
        alone.party.handle(messages.frame(SHARES, messages.context_of(7, 2, "train"), 6, b""))


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ([0, 1, 2, 3], "too few"),  # 4 of 8; it takes 5
        # Without the client itself, place 2:
        ([0, 1, 3, 4, 5, 6], "too few clients are left, or others"),
    ],
)
def test_a_client_does_not_open_a_sum_of_too_few(left: list[int], message: str) -> None:
    alone = Alone(upto=REVEAL)
    alone.expect_refusal(REVEAL, messages.bits_of(np.isin(np.arange(8), left)), message)


def test_a_client_does_not_open_somebody_who_never_dealt_out() -> None:
    alone = Alone(upto=REVEAL)
    alone.party.alive[0] = False
    alone.expect_refusal(REVEAL, messages.bits_of(np.ones(8, bool)), "others than before")


def test_a_client_does_not_open_a_sum_in_parts() -> None:
    alone = Alone(upto=REVEAL)
    graph = alone.party.graph
    # As if no client had partners.
    alone.party.graph = Graph(np.full_like(graph.partners, alone.party.place), graph.holders)
    alone.expect_refusal(REVEAL, messages.bits_of(np.ones(8, bool)), "fall into unconnected parts")


@pytest.mark.parametrize("ids", [[0, 3], [0, 3, 9], [0, 6, 6, 9], [9, 6, 3], [3, 4, 5]])
def test_a_roster_that_cannot_be(ids: list[int]) -> None:
    alone = Alone(upto=SHARES)
    body = np.uint32(len(ids)).tobytes() + np.array(ids, "<i8").tobytes()
    alone.expect_refusal(SHARES, body, "a roster without this client")


def test_a_late_vector_of_a_client_that_was_given_up_stays_hidden() -> None:
    """Its mask key is opened, so only its own mask is left; that is never opened."""
    late: list[bytes] = []
    room = Room(values(8))

    def fault(phase: int, client: int, reply: bytes) -> list[bytes]:
        if (phase, client) != (VECTOR, 6):
            return [reply]
        late.append(reply)
        return []

    room.fault = fault
    expect_sum(room, set(room.values) - {6})
    party = room.parties[6]
    y = np.frombuffer(late[0][HEAD + 1 :], "<u8").copy()
    for partner, key in party.mask_keys.items():
        keys.mask(y, key, minus=party.place < partner)
    assert y[0] != 1
    keys.mask(y, party.seed, minus=True)
    assert y[0] == 1


def test_of_every_client_one_kind_of_share_is_revealed() -> None:
    kinds: dict[int, set[int]] = {}
    room = Room(values(12), gone={6: VECTOR, 9: VECTOR})

    def fault(phase: int, client: int, reply: bytes) -> list[bytes]:
        if phase == REVEAL:
            holders = room.parties[client].holders
            for ward, kind in zip(holders.tolist(), reply[HEAD : HEAD + len(holders)], strict=True):
                kinds.setdefault(3 * ward, set()).add(kind)
        return [reply]

    room.fault = fault
    room.run()
    assert kinds == {c: {KEY} if c in (6, 9) else {SEED} for c in room.values}
    assert PACKET_BYTES == 144
