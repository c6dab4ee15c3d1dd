"""When an acknowledgement may leave, and that it is the client's own bytes."""

from __future__ import annotations

import pytest
from headrace_forward.session import ForwardSession

from tests.forward.driving import NOW_MS, TIME, ack, drive, message, one_by_one, pack, session


def encoded(chunk: bytes) -> bytes:
    """A message whose chunk is given as msgpack."""
    return b"\x94" + pack("t") + pack(TIME) + pack({"m": 1}) + b"\x81" + pack("chunk") + chunk


def said(driven: ForwardSession) -> list[bytes]:
    """All it has to write now, one item for each write."""
    return list(iter(driven.outgoing, b""))


CHUNKS = {
    "fixstr": b"\xa3abc",
    "str8 that could be shorter": b"\xd9\x03abc",
    "str8": b"\xd9\x28" + b"x" * 40,
    "str16": b"\xda\0\x03abc",
    "str32": b"\xdb\0\0\0\x03abc",
    "str16 of 1 KiB": b"\xda\x04\0" + b"y" * 1024,
    "fluentd's 25 bytes": b"\xb9" + b"Y2h1bmsxY2h1bmsxY2h1bmsx\n",
    "no utf-8": b"\xa4\xff\xfe\0\n",
    "empty str": b"\xa0",
    "empty str8": b"\xd9\0",
    "bin8": b"\xc4\x03abc",
    "bin16": b"\xc5\0\x03abc",
    "bin32": b"\xc6\0\0\0\x03abc",
    "empty bin": b"\xc4\0",
    "posint": b"\x07",
    "zero": b"\0",
    "negint": b"\xff",
    "uint8": b"\xcc\x07",
    "uint64": b"\xcf" + b"\xff" * 8,
    "int64": b"\xd3\x80" + b"\0" * 7,
}


@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
def test_a_chunk_comes_back_byte_for_byte_in_its_own_type(chunk: bytes) -> None:
    for pieces in ([encoded(chunk)], one_by_one(encoded(chunk))):
        outcome = drive(pieces)
        assert outcome.replies == [b"\x81\xa3ack" + chunk]
        assert not outcome.unacknowledgeable


def test_no_chunk_no_reply_but_it_makes_way_and_is_remembered() -> None:
    driven = session()
    driven.receive(message(pack({}), option={}) + message(pack({})), NOW_MS)
    first, second = driven.frames()
    assert (first.acknowledged, second.acknowledged) == (False, True)
    assert driven.status().unacknowledgeable
    driven.stored(second.ticket, 1, True)
    assert said(driven) == []
    driven.stored(first.ticket, 1, True)
    assert said(driven) == [ack("c")]
