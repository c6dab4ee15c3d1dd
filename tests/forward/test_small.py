"""The short way of small messages: it gives what the long way gives, what clients send takes it, and it has its limits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from headrace_common.record import native
from headrace_common.session.interface import AT_ONCE, SMALL, Frame
from headrace_forward.events.message import ForwardFrame
from headrace_forward.events.plain import PlainFrame
from headrace_forward.wire import EventTime, ForwardDecoder, ForwardMessage, Mode, encode
from msgspec.structs import replace

from tests.forward.driving import drive, message, one_by_one, pack, session
from tests.forward.test_limits import ENTRY, packed

PLAIN: tuple[Mode, ...] = tuple(mode for mode in get_args(Mode) if not mode.startswith("Compressed"))
ENTRIES = [(EventTime(1_700_000_000, number + 1), {"log": f"line {number}", "n": number}) for number in range(3)]


def decoder(frame_bytes: int = 1 << 20) -> ForwardDecoder:
    return ForwardDecoder(frame_bytes, 1000)


def long_way(data: bytes) -> list[ForwardMessage]:
    return list(decoder().receive(data))


def frame(data: bytes, **limits: Any) -> Frame:
    driven = session(**limits)
    driven.receive(data, 1_700_000_000_000)
    (made,) = driven.frames()
    return made


def sized(length: int) -> bytes:
    """A message of `length` bytes, with one entry."""
    rest = length - len(packed(b"\x92" + pack({}) + pack({"m": "x" * 300})))
    return packed(b"\x92" + pack({}) + pack({"m": "x" * (300 + rest)}))


def exactly(length: int) -> bytes:
    """As `sized`, whatever the widths of its lengths."""
    return next(data for guess in range(length - 8, length + 9) if len(data := sized(guess)) == length)


@pytest.mark.parametrize("mode", PLAIN)
@pytest.mark.parametrize("chunk", ["abc", b"abc", None])
def test_what_clients_send_takes_it_and_is_cut_alike(mode: Mode, chunk: str | bytes | None) -> None:
    data = encode("tag", ENTRIES[:1] if mode == "Message" else ENTRIES, mode=mode, chunk=chunk)
    assert decoder().whole(data) == long_way(data)[0]
    made = frame(data)
    assert made.small
    assert made.at_once() is not None
    careful = made._carefully() if isinstance(made, PlainFrame) else made
    assert isinstance(careful, ForwardFrame)
    assert careful._ordinary() is not None
    taken = native.label() == "on" and mode != "Forward" and chunk != b"abc"
    assert isinstance(made, PlainFrame if taken else ForwardFrame)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_several_in_a_row_are_as_in_one_piece(mode: Mode) -> None:
    """Also where a fault behind them is."""
    each = [encode("tag", [entry], mode=mode, chunk=f"chunk {n}") for n, entry in enumerate(ENTRIES)]
    pieces = [each[0], each[1][:9], each[1][9:], each[2], each[0] + each[1], each[2], b"\x05"]
    whole = drive([b"".join(pieces)]).comparable()
    assert drive(pieces).comparable() == whole
    assert drive(one_by_one(b"".join(pieces))).comparable() == whole


def test_only_what_the_native_core_makes_is_said_to_be_alone() -> None:
    """Where a session says that nothing but a frame is new, nothing else of it is looked at."""
    driven = session()

    def alone(data: bytes) -> bool | None:
        before = driven.status()
        said = driven.receive(data, 1_700_000_000_000)
        made = [made.at_once() for made in driven.frames()]
        if said:
            assert (len(made), replace(driven.status(), idle=True)) == (1, replace(before, idle=True))
            assert not driven.outgoing()
        return said

    data = encode("tag", ENTRIES, chunk="abc")
    assert [alone(data) for _ in range(3)] == [None, None, native.label() == "on" or None]
    others = [encode("other", ENTRIES, chunk="abc"), encode("tag", ENTRIES), data + data, data[:9], data[9:], b"\xc0"]
    assert [alone(other) for other in others] == [None] * len(others)


def test_its_size_is_limited() -> None:
    assert decoder().whole(exactly(SMALL)) is not None
    assert decoder().whole(exactly(SMALL + 1)) is None
    assert frame(exactly(SMALL)).small
    assert not frame(exactly(SMALL + 1)).small
    data = packed(ENTRY)
    assert decoder(frame_bytes=len(data)).whole(data) is not None
    assert decoder(frame_bytes=len(data) - 1).whole(data) is None


@pytest.mark.parametrize("entry", [ENTRY, b"\x92\x01\x81\x01\x02"])
def test_its_number_of_parts_is_limited(entry: bytes) -> None:
    """Whatever its option says, and whether its entries are ordinary or odd."""
    for said in (1, AT_ONCE, 0, 200, None):
        option = {} if said is None else {"size": said}
        made = frame(packed(entry * AT_ONCE, **option)).at_once()
        assert made is not None
        assert len(made) == AT_ONCE
        assert frame(packed(entry * (AT_ONCE + 1), **option)).at_once() is None


def test_a_frame_of_listed_entries_is_small_up_to_as_many() -> None:
    entries = [[1, {"m": number}] for number in range(AT_ONCE + 1)]
    assert frame(pack(["t", entries[:-1], {"chunk": "c"}])).small
    assert not frame(pack(["t", entries, {"chunk": "c"}])).small


def test_what_is_compressed_is_not_small() -> None:
    assert not frame(encode("tag", ENTRIES, mode="CompressedPackedForward", chunk="c")).small


def test_the_tag_is_looked_at_again_when_it_changes() -> None:
    pieces = [message(pack({"m": 1}), tag=tag) for tag in ("a", "b", "x" * 300, "b", "", "a")]
    outcome = drive(pieces, tag_bytes=255)
    assert outcome.comparable() == drive([b"".join(pieces)], tag_bytes=255).comparable()
    assert [reject.reason.value for reject in outcome.rejects] == ["bad_message"]
