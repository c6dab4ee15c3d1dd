"""Windows: what may follow what, and what is acknowledged."""

from __future__ import annotations

import struct
import zlib

import pytest
from headrace_lumberjack.wire import compressed, json_frame, pairs_frame, window

from tests.driving import feed
from tests.lumberjack.driving import every_way, session

V1 = 0x31


def v2(*sequences: int, documents: list[bytes] | None = None) -> bytes:
    documents = documents or [b'{"n":%d}' % sequence for sequence in sequences]
    return b"".join(map(json_frame, sequences, documents))


def v1(*sequences: int) -> bytes:
    return b"".join(pairs_frame(sequence, [(b"line", b"%d" % sequence)]) for sequence in sequences)


def test_a_window_in_pieces() -> None:
    """Raw frames and several C frames in one window; Logstash takes that, go-lumber's server does not."""
    data = window(6) + v2(1) + compressed(v2(2, 3)) + v2(4) + compressed(v2(5)) + compressed(v2(6), 9)
    outcome = every_way(data + window(1) + v2(1))
    assert [event.json["n"] for event in outcome.events] == [1, 2, 3, 4, 5, 6, 1]
    assert outcome.acks == [("2", 6), ("2", 1)]


def test_windows_inside_a_compressed_frame() -> None:
    """As timbersnake writes them."""
    data = compressed(window(2) + v2(0, 1) + window(0) + window(3) + v2(0)) + v2(1, 2)
    outcome = every_way(data)
    assert outcome.acks == [("2", 1), ("2", 0), ("2", 2)]
    assert len(outcome.events) == 5


def test_an_empty_compressed_frame_is_nothing() -> None:
    assert every_way(window(1) + compressed(b"") + v2(1)).acks == [("2", 1)]


def test_versions_may_change_between_windows_only() -> None:
    assert every_way(window(1, V1) + v1(4) + window(1) + v2(5) + window(0, V1)).acks == [("1", 4), ("2", 5), ("1", 0)]


BEYOND = "data beyond the window"


@pytest.mark.parametrize(
    ("data", "problem", "acks", "events", "offset"),
    [
        (v2(1), "data of version 2 before any window", [], 0, 0),
        (v1(1), "data of version 1 before any window", [], 0, 0),
        (window(1) + v2(1) + v2(2), BEYOND, [1], 1, 23),
        (window(0) + v2(1), BEYOND, [0], 0, 6),
        (window(0, V1) + v1(1), BEYOND, [0], 0, 6),
        (window(2) + v2(1) + window(1), "a W frame while 1 events of the last window are missing", [], 1, 23),
        (window(2) + window(1), "a W frame while 2 events of the last window are missing", [], 0, 6),
        (window(2) + window(1, V1), "a W frame while 2 events of the last window are missing", [], 0, 6),
        (window(2) + v1(1), "data of version 1 in a window of version 2", [], 0, 6),
        (window(2, V1) + v2(1), "data of version 2 in a window of version 1", [], 0, 6),
        (window(2) + compressed(v1(1)), "data of version 1 in a window of version 2", [], 0, 6),
        (window(1) + b"2D" + bytes(8), "a D frame is not of version 2", [], 0, 6),
        (window(1) + b"1J" + bytes(8), "data of version 1 in a window of version 2", [], 0, 6),
        (window(1) + b"\x02J" + bytes(8), "neither version 1 nor version 2 of Lumberjack", [], 0, 6),
        (window(1) + b"2A" + bytes(4), "no frame that a client sends", [], 0, 6),
        (window(1) + b"2w", "no frame that a client sends", [], 0, 6),
        (window(2) + compressed(v2(1, 2, 3)), BEYOND, [2], 2, 6),
        (window(2) + compressed(v2(1, 2) + compressed(v2(3))), "no frame that a client sends inside a C frame", [2], 2, 6),
        (window(2) + compressed(v2(1) + window(1)), "a W frame while 1 events of the last window are missing", [], 1, 6),
        (window(2) + compressed(v2(1, 2)[:-1]), "a C frame ends inside a frame", [], 1, 6),
        (window(2) + compressed(v2(1, 2) + b"2"), "a C frame ends inside a frame", [2], 2, 6),
        (window(3) + v2(1) + compressed(v2(2) + b"GET"), "neither version", [], 2, 23),
        (window(2), "the stream ends inside a window", [], 0, 6),
        (window(1) + v2(1) + window(2) + v2(1), "the stream ends inside a window", [1], 2, 46),
        (window(1) + v2(1) + window(2) + v2(1) + b"2", "the stream ends inside a frame", [1], 2, 46),
        (window(1) + v2(1) + b"2", "the stream ends inside a frame", [1], 1, 23),
        (window(1, V1) + v1(1) + v1(2)[:-1], "the stream ends inside a frame", [1], 1, 29),
    ],
)  # fmt: skip
def test_what_the_protocol_does_not_allow(data: bytes, problem: str, acks: list[int], events: int, offset: int) -> None:
    outcome = every_way(data)
    assert problem in str(outcome.error)
    assert outcome.error is not None
    assert outcome.error.offset == offset
    assert [number for _, number in outcome.acks] == acks
    assert len(outcome.events) == events


def c_frame(stream: bytes) -> bytes:
    return struct.pack(">2sI", b"2C", len(stream)) + stream


STREAM = zlib.compress(v2(1, 2))


@pytest.mark.parametrize(
    "stream",
    [
        STREAM + b"\0",
        STREAM + STREAM,
        STREAM[:-1],
        STREAM[:-4] + bytes(4),  # the checksum
        STREAM[:5] + b"\xff" + STREAM[6:],
        b"",
        b"no zlib",
        zlib.compress(v2(1, 2), wbits=31),  # gzip
        zlib.compress(v2(1, 2), wbits=-15),  # raw deflate
    ],
)
def test_a_compressed_frame_must_be_one_sound_stream(stream: bytes) -> None:
    outcome = every_way(window(2) + c_frame(stream))
    assert outcome.error is not None
    assert outcome.error.offset == 6
    assert outcome.error.sample == c_frame(stream)[:16]
    assert (outcome.parts, outcome.out) == ([], b"")


def test_v1_opens_windows_of_the_same_size_by_itself() -> None:
    """logstash-forwarder's and old Ruby clients' sliding reading."""
    data = window(3, V1) + v1(1, 2, 3, 4, 5, 6) + compressed(v1(7, 8, 9, 10, 11, 12), 3, V1)
    outcome = every_way(data)
    assert outcome.acks == [("1", 3), ("1", 6), ("1", 9), ("1", 12)]
    assert outcome.error is None
    assert [int(event.json["line"]) for event in outcome.events] == list(range(1, 13))


def test_a_v1_window_that_comes_early_ends_the_last() -> None:
    outcome = every_way(window(5, V1) + v1(1, 2) + window(1, V1) + v1(3))
    assert outcome.acks == [("1", 2), ("1", 3)]
    assert outcome.error is None
    assert every_way(window(5, V1) + window(1, V1) + v1(3)).acks == [("1", 3)]


def test_our_bug_costs_a_unit_but_no_acknowledgement() -> None:
    driven = session()
    feed(driven, window(3) + v2(1, 2, 3))
    (frame,) = driven.frames()
    assert frame.spoiled("why").raw == v2(1, 2, 3)
    driven.stored(frame.ticket, 2, False)  # one event, and the reject that stands for all
    driven.stored(frame.ticket, 2, True)
    assert driven.outgoing() == b"2A\0\0\0\3"
