"""The native core makes the same bytes as Python: of what clients send, of every msgpack, at every limit."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any, Final, get_args

import pytest
from headrace_common.record import native
from headrace_common.record.event import Reject
from headrace_common.session.interface import SMALL_PARTS, Peer
from headrace_forward.events.message import MadeFrame
from headrace_forward.wire import EventTime

from tests.common.kafkaless import ENVELOPE
from tests.forward.driving import NOW_MS, PEER, TIME, Mode, Outcome, drive, encode, event_time, message, pack, session
from tests.fuzz.chance import flat
from tests.fuzz.subjects import made
from tests.native import needs_native, using
from tests.tiers import sized

pytestmark = needs_native


KNOWN = b"\x93\xa1t\xa3\x92\x01\x80\x81\xa5chunk\xa1k"
"""A plain message. After it the core makes all events of another in one call, if it has the same tag."""


SMALL: Final = {
    "frame_bytes": 4096, "event_bytes": 1024, "inflated_bytes": 8192, "frame_events": 20, "depth": 8, "tag_bytes": 64,
    "chunk_bytes": 64, "option_bytes": 1024,
}  # fmt: skip


def check(data: bytes, **limits: Any) -> Outcome:
    """What Python makes of `data`, and the native core too, in a call for all of it or for some entries."""
    drive([KNOWN, KNOWN, data], **limits)
    return drive([data], **limits)


def plain(entry: bytes, **limits: int) -> int:
    """How many bytes of an entry the native core encodes."""
    assert native.NATIVE is not None
    pieces = ENVELOPE.pieces
    most = (limits.get("event_bytes", 1 << 20), limits.get("depth", 64))
    _, read = native.NATIVE.entries(pieces, b"", b"d." + b"0" * 24, b"u." + b"0" * 24, most, entry, 0, 99)
    return read


@pytest.mark.parametrize("limits", [{}, SMALL], ids=["usual limits", "small limits"])
def test_what_the_fuzzer_makes(limits: dict[str, Any]) -> None:
    """To the byte, with the ids, in one call and in runs; the fuzzer itself compares what comes of the whole and of pieces."""
    for number in range(sized(150, 1500, 5000)):
        _, sent, _ = made("forward", f"native-{number}")
        check(flat(sent), **limits)
        drive([flat(sent)] * 3, **limits)  # its own tags are known


@pytest.mark.parametrize("peer", [PEER, Peer("192.0.2.7", 1, "CN=a,O=b", certified=True)])
@pytest.mark.parametrize("size", [0, 1, 23, 24, 25, 31, 32, 33, 64, 128])
def test_all_events_of_a_message_in_one_call(size: int, peer: Peer) -> None:
    """Ids hash chunk, client and entries; some chunks name none."""
    for mode in get_args(Mode)[:3]:
        for count in (1, 9, SMALL_PARTS, SMALL_PARTS + 1):
            entries = [(EventTime(1_700_000_000, 10**6 * (n % 2) + 1), {"n": n}) for n in range(count)]
            if mode == "Message":
                entries = entries[:1]
            data = encode("t", entries, mode=mode, chunk='"' * size)
            check(data, peer=peer)
            driven = session(peer)
            with using("native"):
                for piece in (KNOWN, KNOWN, data):
                    driven.receive(piece, NOW_MS)
                    *_, last = driven.frames()
                    assert [*last.parts()]
            in_one = mode != "Forward" and size not in (0, 24, 32) and len(entries) <= SMALL_PARTS
            assert isinstance(last, MadeFrame) == in_one


@pytest.mark.parametrize("core", ["native", "python"])
def test_a_session_says_whether_only_frames_are_new(core: str) -> None:
    """Then nothing else of it is looked at."""
    with using(core):
        driven = session()

        def alone(data: bytes) -> bool:
            before = driven.status()
            said = driven.receive(data, NOW_MS)
            for frame in driven.frames():
                list(frame.parts())
            if said:
                assert driven.status() == before
                assert not driven.outgoing()
            return bool(said)

        entries = [(EventTime(1_700_000_000, number + 1), {"n": number}) for number in range(3)]
        data = encode("tag", entries, chunk="abc")
        other, unasked = encode("other", entries, chunk="abc"), encode("tag", entries)
        assert [alone(data) for _ in range(3)] == [False, True, True]
        assert [alone(each) for each in (other, data + data, b"\xc0")] == [True, True, True]
        assert [alone(each) for each in (data[:9], data[9:], unasked, data[:9])] == [False] * 4


def test_another_tag_is_not_taken_for_the_one_that_is_known() -> None:
    for tag in ("", "u", "tt", "s"):
        drive([KNOWN, KNOWN, message(pack({"m": 1}), tag=tag), KNOWN, KNOWN, KNOWN])
        drive([KNOWN, KNOWN, KNOWN + KNOWN, message(pack({"m": 1}), tag=tag)])


def many(count: int, odd: int) -> Iterator[bytes]:
    for number in range(count):
        bad = float("nan") if number % odd == odd - 1 else number
        yield b"\x92" + pack(TIME) + pack({"n": bad, "m": "x" * (number % 90), "b": b"bin"})


@pytest.mark.parametrize("odd", [1, 2, 3, 100, 257, 1000, 10_000])
@pytest.mark.parametrize("mode", ["listed", "packed", "gzip"])
def test_large_frames_with_odd_entries_among_them(odd: int, mode: str) -> None:
    entries = [*many(2_500, odd)]
    body = b"".join(entries)
    second = pack(gzip.compress(body, 1) if mode == "gzip" else body)
    if mode == "listed":
        second = b"\xdc" + len(entries).to_bytes(2, "big") + body
    assert len(check(b"\x93\xa1t" + second + pack({"chunk": "c"})).flat) == len(entries)
    few = check(b"\x93\xa1t" + second + pack({"chunk": "c"}), frame_events=1_000).flat
    assert len(few) == 1_001
    assert isinstance(few[-1], Reject)


def test_what_clients_send_is_plain() -> None:
    """Else the core would be there and never used."""
    entries = [
        pack([TIME, {"message": "x", "n": {"k": [1, None, True, 1.5]}}]),
        pack([1_700_000_000, {"log": b"from in_tail"}]),
        pack([1_700_000_000.25, {}]),
        pack([[event_time(1_700_000_000, 0), {}], {"é": "ü"}]),
    ]
    for entry in entries:
        assert plain(entry) == len(entry)
    assert plain(b"".join(entries)) == sum(map(len, entries))
    assert plain(entries[0] + pack([0, {}]) + entries[0]) == len(entries[0])
    frame = encode("t", [(EventTime(1_700_000_000, n), {"n": n}) for n in range(9)], chunk="c")
    assert len(check(frame).events) == 9


def test_a_call_ends_after_a_bounded_number_of_bytes() -> None:
    """Texts that become six times as long."""
    entry = pack([1, {"k": "\x01" * 1000}])
    assert 0 < plain(entry * 99) < 99 * len(entry)
    assert 0 < plain(b"\x92\x01\x80" * 9) == 27


def test_a_bug_in_the_core_is_an_exception() -> None:
    """It unwinds: the frame is spoiled, and the process lives."""
    assert native.NATIVE is not None
    pieces = ENVELOPE.pieces
    with pytest.raises(RuntimeError):
        native.NATIVE.entries(pieces, b"", b"too short", b"", (1 << 20, 64), b"\x92\x01\x80", 0, 9)
