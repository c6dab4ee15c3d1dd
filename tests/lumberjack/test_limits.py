"""Limits, both sides of each; and that memory follows what arrived, never what was announced."""

from __future__ import annotations

import itertools
import os
import struct
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import KIB, MIB
from headrace_common.session.inflate import INPUT_WORK
from headrace_lumberjack.content import MOST_WINDOWS
from headrace_lumberjack.session import EMPTY_WINDOWS, WORK
from headrace_lumberjack.wire import V1, C, compressed, json_frame, pairs_frame, window

from tests.driving import BARREN_ZLIB, traced
from tests.lumberjack.driving import Outcome, acks, drive, every_way, feed, session


def refused(outcome: Outcome, limit: str) -> bool:
    return outcome.error is not None and outcome.error.limit == limit and not outcome.parts


@pytest.mark.parametrize("version", [V1, 0x32])
def test_window(version: int) -> None:
    assert every_way(window(0, version), window_events=5).error is None
    driven = session(window_events=5)
    feed(driven, window(5, version))
    assert driven.status().partial_bytes
    for size in (6, 2**31, 2**32 - 1):
        assert refused(every_way(window(size, version), window_events=5), "LUMBERJACK__WINDOW_EVENTS")
        inside = window(5, version) if version == V1 else b""
        data = inside + compressed(window(size, version), 3, version)
        assert refused(every_way(data, window_events=5), "LUMBERJACK__WINDOW_EVENTS")


def test_frame() -> None:
    limits = {"frame_bytes": 2 * KIB, "event_bytes": 2 * KIB}
    text = b"x" * (2 * KIB)
    json = json_frame(1, b'{"m":"%b"}' % text[: 2 * KIB - 10 - 8])
    pairs = pairs_frame(1, [(b"line", text[: 2 * KIB - 10 - 4 - 4 - 4])])
    assert len(json) == len(pairs) == 2 * KIB
    assert len(every_way(window(1) + json, **limits).events) == 1
    assert len(every_way(window(1, V1) + pairs, **limits).flat) == 1
    more = json_frame(1, b'{"m":"%b"}' % text[: 2 * KIB - 10 - 7])
    assert refused(every_way(window(1) + more, **limits), "LIMITS__FRAME_BYTES")
    assert refused(every_way(window(1) + more[:10], **limits), "LIMITS__FRAME_BYTES")  # announced is enough
    more = pairs_frame(1, [(b"line", text[: 2 * KIB - 10 - 4 - 4 - 3])])
    assert refused(every_way(window(1, V1) + more, **limits), "LIMITS__FRAME_BYTES")
    assert refused(every_way(window(1) + compressed(json_frame(1, b'"%b"' % text)), **limits), "LIMITS__FRAME_BYTES")


def test_compressed_frame() -> None:
    frames = json_frame(1, b'{"m":"%b"}' % os.urandom(600).hex().encode())
    data = compressed(frames)
    limits = {"event_bytes": KIB + 512, "inflated_bytes": 2 * KIB}
    assert 600 < len(data) < KIB
    frames += json_frame(2, b'{"m":"%b"}' % os.urandom(250).hex().encode())
    stream = zlib.compress(frames, 0)
    exact = struct.pack(">2sI", b"2C", len(stream)) + stream
    assert len(every_way(window(2) + exact, frame_bytes=len(exact), **limits).events) == 2
    assert refused(every_way(window(2) + exact, frame_bytes=len(exact) - 1, **limits), "LIMITS__FRAME_BYTES")
    assert refused(every_way(window(2) + b"2C\xff\xff\xff\xff"), "LIMITS__FRAME_BYTES")


def test_inflated_size() -> None:
    frames = json_frame(1, b'{"m":"%b"}' % (b"x" * 5000))
    assert len(every_way(window(1) + compressed(frames), inflated_bytes=len(frames)).events) == 1
    assert refused(every_way(window(1) + compressed(frames), inflated_bytes=len(frames) - 1), "LIMITS__INFLATED_BYTES")


def test_ratio() -> None:
    """Judged above a MiB of output."""

    def of(size: int) -> bytes:
        return json_frame(1, b'{"m":"%b"}' % (b"x" * (size - 18)))

    small, large = of(MIB), of(MIB + 1)
    assert len(small) == MIB
    stream = compressed(large)
    ratio = len(large) / (len(stream) - 6)
    assert len(drive([window(1) + compressed(small)], ratio=2).flat) == 1
    assert len(drive([window(1) + stream], ratio=ratio + 1e-6).flat) == 1
    assert refused(drive([window(1) + stream], ratio=ratio - 0.01), "LIMITS__RATIO")


@pytest.mark.parametrize(
    ("pairs", "setting", "size"),
    [
        (lambda n: [(b"k%d" % i, b"v") for i in range(n)], "pairs", 3),
        (lambda n: [(b"a", b"b"), (b"k" * n, b"v")], "key_bytes", 20),
        (lambda n: [(b"a", b"b"), (b"k", b"v" * n)], "value_bytes", 20),
    ],
)
def test_pairs_keys_and_values(pairs: Any, setting: str, size: int) -> None:
    def frame(n: int) -> bytes:
        return window(1, V1) + pairs_frame(1, pairs(n))

    assert len(every_way(frame(size), **{setting: size}).events) == 1
    assert refused(every_way(frame(size + 1), **{setting: size}), f"LUMBERJACK__{setting.upper()}")


def test_a_fault_behind_good_events_costs_them_nothing() -> None:
    outcome = every_way(window(2, V1) + pairs_frame(1, [(b"a", b"b")]) + pairs_frame(2, [(b"k" * 9, b"")]), key_bytes=8)
    assert outcome.error is not None
    assert outcome.error.limit == "LUMBERJACK__KEY_BYTES"
    assert len(outcome.events) == 1
    outcome = every_way(window(2) + json_frame(1, b"{}") + b"2J\0\0\0\2\x7f\xff\xff\xff")
    assert outcome.error is not None
    assert outcome.error.limit == "LIMITS__FRAME_BYTES"
    assert outcome.error.offset == 18
    assert len(outcome.events) == 1


@pytest.mark.parametrize(
    "announced",
    [
        window(65_536),
        window(1) + b"2J\0\0\0\1\0\xff\0\0",
        window(1) + b"2C\0\xff\0\0",
        window(1, V1) + b"1D\0\0\0\1\0\0\4\0\0\0\0\1k\0\xff\0\0",
    ],
)
def test_what_is_announced_costs_nothing(announced: bytes) -> None:
    driven = session()
    with traced():
        feed(driven, announced)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    assert driven.status().partial_bytes < 100


def test_windows_that_v1_opens_by_itself_are_worked_on_in_pieces() -> None:
    """Each frame of a run opens one."""
    driven = session()
    driven.receive(window(1, V1) + pairs_frame(1, []) * 6_000, 1)
    turns, frames, most = 0, 0, 0
    while True:
        turns += 1
        new = len(list(driven.frames()))
        frames, most = frames + new, max(most, new)
        if not driven.status().busy:
            break
        assert driven.status().partial_bytes >= 10 * (6_000 - frames)
        driven.receive(b"", 1)
    assert frames == 6_000
    assert most <= 1024
    assert driven.status().partial_bytes == 0


def test_a_compressed_frame_that_gives_nothing_is_inflated_in_steps() -> None:
    """16 MiB of blocks without output held the event loop for more than five seconds."""
    driven, turns = session(), 1
    driven.receive(struct.pack(">BBI", 0x32, C, len(BARREN_ZLIB)) + BARREN_ZLIB, 1)
    while driven.status().busy:
        driven.receive(b"", 1)
        turns += 1
    assert turns >= len(BARREN_ZLIB) * INPUT_WORK // WORK
    driven.eof()


def test_windows_of_a_compressed_frame() -> None:
    """Some thousand bytes inflate to millions of them, and each takes memory and an answer."""
    pair = window(1) + json_frame(1, b"{}")
    assert len(every_way(compressed(window(0) * MOST_WINDOWS)).acks) == MOST_WINDOWS
    assert len(drive([compressed(pair * MOST_WINDOWS)]).events) == MOST_WINDOWS
    assert (
        len(drive([window(1, V1) + compressed(pairs_frame(1, []) * 1025, 3, V1)]).flat) == 1025
    )  # the first stands before
    for data in (
        compressed(window(0) * (MOST_WINDOWS + 1)),
        compressed(window(5, V1) * (MOST_WINDOWS + 1), 3, V1),
        compressed(pair * (MOST_WINDOWS + 1)),
        window(1, V1) + compressed(pairs_frame(1, []) * 1026, 3, V1),
    ):
        outcome = drive([data])
        assert str(outcome.error) == "a C frame of more than 1024 windows"
        assert outcome.parts == []


def test_frames_of_a_compressed_frame_are_judged_as_they_are_cut() -> None:
    """What may not follow ends the work at once: kept, six million frames of ten bytes take gigabytes."""
    for frames in ((json_frame(1, b"{}") + pairs_frame(1, [])) * 200_000, json_frame(1, b"{}") * 300_000):
        driven = session()
        with traced():
            with pytest.raises(ProtocolError):  # noqa: PT012
                driven.receive(window(1) + compressed(frames), 1)
                while True:
                    driven.receive(b"", 1)
            assert tracemalloc.get_traced_memory()[1] < 4 * len(frames)


def test_windows_without_events_that_wait() -> None:
    """Nothing else counts them while Kafka is slow: they have no frame."""
    for version in (V1, 0x32):
        driven = session()
        first = pairs_frame(7, []) if version == V1 else json_frame(7, b"{}")
        with traced():
            feed(driven, window(1, version) + first + window(0, version) * EMPTY_WINDOWS)
            (frame,) = driven.frames()
            assert tracemalloc.get_traced_memory()[1] < 100_000
        assert driven.outgoing() == b""
        driven.stored(frame.ticket, 1, True)
        assert acks(driven.outgoing()) == [(chr(version), 7)] + [(chr(version), 0)] * EMPTY_WINDOWS
        feed(driven, window(1, version) + first + window(0, version) * EMPTY_WINDOWS)
        with pytest.raises(ProtocolError, match="more than 4096 windows without events"):
            feed(driven, window(0, version))
        (frame,) = driven.frames()
        driven.stored(frame.ticket, 1, True)
        assert len(acks(driven.outgoing())) == 1 + EMPTY_WINDOWS


def test_a_v1_event_that_dribbles_in_is_not_scanned_again_and_again() -> None:
    pairs = [(b"k%d" % n, b"v" * 20) for n in range(1000)]
    data = window(1, V1) + pairs_frame(1, pairs)
    driven, calls = session(), itertools.count()
    sys.setprofile(lambda *_: next(calls))
    try:
        for at in range(len(data)):
            driven.receive(data[at : at + 1], 1)
    finally:
        sys.setprofile(None)
    assert len(list(driven.frames())) == 1
    assert next(calls) < 200 * len(data)  # 30,000 scans of up to 1,000 pairs would be a thousand calls for each byte
