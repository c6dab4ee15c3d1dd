"""Small messages, which are built in one call: what clients send is, and there are limits."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from headrace_common.record import native
from headrace_common.session.interface import AT_ONCE, SMALL, Frame
from headrace_forward.wire import EventTime
from msgspec.structs import replace

from tests.forward.driving import Mode, drive, encode, message, one_by_one, pack, session
from tests.forward.test_limits import ENTRY, packed
from tests.native import CORES, needs_native, using

ENTRIES = [(EventTime(1_700_000_000, number + 1), {"log": f"line {number}", "n": number}) for number in range(3)]


def frame(data: bytes, **limits: Any) -> Frame:
    driven = session(**limits)
    driven.receive(data, 1_700_000_000_000)
    (made,) = driven.frames()
    return made


def exactly(length: int) -> bytes:
    """A message of `length` bytes, with one entry."""
    guesses = (packed(b"\x92\x01" + pack({"m": "x" * size})) for size in range(length - 60, length))
    return next(data for data in guesses if len(data) == length)


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("chunk", ["abc", b"abc", None])
def test_what_clients_send_is_small_unless_it_grows(mode: Mode, chunk: str | bytes | None) -> None:
    data = encode("tag", ENTRIES[:1] if mode == "Message" else ENTRIES, mode=mode, chunk=chunk)
    assert frame(data).small == (not mode.startswith("Compressed"))
    assert frame(data).at_once() is not None or not frame(data).small


@pytest.mark.parametrize("mode", get_args(Mode))
def test_several_in_a_row_are_as_in_one_piece(mode: Mode) -> None:
    """Also where a fault behind them is."""
    each = [encode("tag", [entry], mode=mode, chunk=f"chunk {n}") for n, entry in enumerate(ENTRIES)]
    pieces = [each[0], each[1][:9], each[1][9:], each[2], each[0] + each[1], each[2], b"\x05"]
    whole = drive([b"".join(pieces)]).comparable()
    assert drive(pieces).comparable() == whole
    assert drive(one_by_one(b"".join(pieces))).comparable() == whole


@needs_native
def test_only_what_the_native_core_makes_is_said_to_be_alone() -> None:
    """Where a session says that nothing but a frame is new, nothing else of it is looked at."""
    with using("native"):
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
        assert [alone(data) for _ in range(3)] == [None, True, True]
        others = [
            encode("other", ENTRIES, chunk="abc"),
            encode("tag", ENTRIES),
            data + data,
            data[:9],
            data[9:],
            b"\xc0",
        ]
        assert [alone(other) for other in others] == [None] * len(others)
        assert native.label() == "on"


def test_its_size_is_limited() -> None:
    assert frame(exactly(SMALL)).small
    assert not frame(exactly(SMALL + 1)).small


@pytest.mark.parametrize("entry", [ENTRY, b"\x92\x01\x81\x01\x02"])
@pytest.mark.parametrize("name", CORES)
def test_its_number_of_parts_is_limited(name: str, entry: bytes) -> None:
    """Whether its entries are plain or odd."""
    with using(name):
        made = frame(packed(entry * AT_ONCE)).at_once()
        assert made is not None
        assert len(made) == AT_ONCE
        assert frame(packed(entry * (AT_ONCE + 1))).at_once() is None


def test_the_tag_is_looked_at_again_when_it_changes() -> None:
    pieces = [message(pack({"m": 1}), tag=tag) for tag in ("a", "b", "x" * 300, "b", "", "a")]
    outcome = drive(pieces, tag_bytes=255)
    assert outcome.comparable() == drive([b"".join(pieces)], tag_bytes=255).comparable()
    assert [reject.reason.value for reject in outcome.rejects] == ["bad_message"]
