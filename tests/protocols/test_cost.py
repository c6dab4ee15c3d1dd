"""What hostile bytes may cost: memory follows what arrived, and work on much that comes at once is cut into turns.

Limits, with both sides, are in `tests/fuzz/limits.py`; that time is linear, in `tests/fuzz/growth.py`.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack

import pytest
from headrace_common.operations.settings import MIB
from headrace_common.session.inflate import INPUT_WORK
from headrace_common.session.interface import ByteSession, Frame
from headrace_common.session.parser import MESSAGE_WORK, WORK
from headrace_courier.wire import HEADER, PING, PONG, STREAMING, entry, jdat
from headrace_logjam.wire import ZLIB
from headrace_lumberjack.wire import V1, compressed, json_frame, pairs_frame, window
from headrace_segment.session.conversation import SegmentSession

from tests.courier import driving as courier
from tests.driving import BARREN_GZIP, BARREN_ZLIB, NOW_MS, PEER, feed, traced
from tests.forward import driving as forward
from tests.logjam import driving as logjam
from tests.lumberjack import driving as lumberjack
from tests.segment import instant, speaking


def segment() -> ByteSession:
    return SegmentSession(PEER, instant.LIMITS, instant.SECTION)


LIE = b"\xff\xff\xff\xff"
ANNOUNCED: list[tuple[Callable[[], ByteSession], bytes]] = [
    *(
        (forward.session, start + kind + LIE)
        for start in (b"", b"\x93\xa1t", b"\x94\xa1t\x01\x81\xa1a")
        for kind in (b"\xdd", b"\xc6", b"\xdf")
        if start or kind == b"\xdd"
    ),
    (lumberjack.session, window(65_536)),
    (lumberjack.session, window(1) + b"2J\0\0\0\1\0\xff\0\0"),
    (lumberjack.session, window(1) + b"2C\0\xff\0\0"),
    (lumberjack.session, window(1, V1) + b"1D\0\0\0\1\0\0\4\0\0\0\0\1k\0\xff\0\0"),
    (courier.session, HEADER.pack(b"JDAT", 16 * MIB) + courier.NONCE),
    (courier.session, HEADER.pack(b"NEWS", 16 * MIB) + bytes(MIB)),  # it is not kept
    (courier.session, courier.payload(b"\x7f\xff\xff\xff" + b"x" * 100)[:-8]),
    (segment, speaking.setup() + speaking.begin(0, MIB - 100)),
]


@pytest.mark.parametrize(("session", "announced"), ANNOUNCED, ids=range(len(ANNOUNCED)))
def test_what_is_announced_costs_nothing(session: Callable[[], ByteSession], announced: bytes) -> None:
    driven = session()
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        feed(driven, announced)
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    assert driven.status().partial_bytes < 1024


def steps_of(frame: Frame) -> int:
    return sum(isinstance(run, int) for run in frame.runs())


def of_stream(driven: ByteSession, data: bytes) -> int:
    driven.receive(data, NOW_MS)
    turns = 1
    while driven.status().busy:
        driven.receive(b"", NOW_MS)
        turns += 1
    return turns + sum(map(steps_of, driven.frames()))


def of_producer() -> int:
    frames = [*logjam.event(b"")[:2], BARREN_ZLIB, logjam.event(b"", ZLIB)[3]]
    (frame,) = logjam.driven().send(logjam.asking(frames))
    return steps_of(frame)


BARREN: dict[str, Callable[[], int]] = {
    "forward": lambda: of_stream(forward.session(), forward.pack(["t", BARREN_GZIP, {"chunk": "c"}])),
    "lumberjack": lambda: of_stream(lumberjack.session(), b"2C" + pack(">I", len(BARREN_ZLIB)) + BARREN_ZLIB),
    "courier, JDAT": lambda: of_stream(
        courier.session(), HEADER.pack(b"JDAT", 16 + len(BARREN_ZLIB)) + courier.NONCE + BARREN_ZLIB
    ),
    "courier, EVNT": lambda: of_stream(
        courier.session(), HEADER.pack(b"EVNT", STREAMING) + courier.NONCE + BARREN_ZLIB
    ),
    "logjam": of_producer,
}


@pytest.mark.parametrize("what", BARREN)
def test_what_gives_nothing_is_inflated_in_steps(what: str) -> None:
    """16 MiB of blocks without output held the event loop for more than five seconds."""
    assert BARREN[what]() >= len(BARREN_ZLIB) * INPUT_WORK // WORK


def zeros(kind: bytes) -> bytes:
    """Sixteen entries of a MiB, which come in 16 KiB."""
    return courier.payload(entry(bytes(MIB - 4)) * 16, kind=kind, level=9)


TINY = b"\x93\xa1t\x01\x80"
LISTED = b'["t",[' + b'[1,{"m":"\\"]"}],' * 40_000 + b'[1,{}]],{"chunk":"c"}] '
BEATS, EMPTY, PAIRS = window(1) + json_frame(1, b"{}"), window(0), pairs_frame(1, [])
OLD = window(1, V1) + pairs_frame(1, [(b"line", b"")])
MANY: dict[str, tuple[Callable[[], ByteSession], bytes, int, int, int]] = {
    "messages": (forward.session, TINY * 12_000, 12_000, 0, 90),
    "messages in JSON": (forward.session, b'["t",1,{}]' * 6_000, 6_000, 0, 45),
    "windows": (lumberjack.session, BEATS * 3_300, 3_300, 6 * 3_300, 24),
    "old windows": (lumberjack.session, OLD * 2_000, 2_000, 6 * 2_000, 14),
    "payloads": (courier.session, courier.HELO + jdat(bytes(16), [b"{}"]) * 1_400, 1_400, 40 + 28 * 1_400, 10),
    "a JDAT of zeros": (courier.session, zeros(b"JDAT"), 1, 20 + 8, 16),
    "an EVNT of zeros": (courier.session, zeros(b"EVNT"), 1, 20 + 8, 16),
    "heartbeats": (forward.session, (b"\xc0" * 1023 + TINY) * 999, 999, 0, 5),
    "a long JSON message": (forward.session, LISTED, 1, 11, 5),
    "windows in a C frame": (lumberjack.session, compressed(BEATS * 20_000), 20_000, 6 * 20_000, 20),
    "empty windows in a C frame": (lumberjack.session, compressed(EMPTY * 20_000), 0, 6 * 20_000, 20),
    "old windows in a C frame": (
        lumberjack.session, window(1, V1) + PAIRS + compressed(PAIRS * 20_000, 3, V1), 20_001, 6 * 20_001, 20,
    ),
    "events of a block": (segment, speaking.setup() + speaking.block(0, speaking.event(b"") * 9000), 0, 0, 3),
    "pings": (courier.session, PING * 32_768, 0, len(PONG) * 32_768, 16),
}  # fmt: skip
"""The session, what comes at once, how many frames and answers (bytes) that gives, and in how many turns at least."""


@pytest.mark.parametrize("what", MANY)
def test_much_that_comes_at_once_is_handed_out_in_turns(what: str) -> None:
    """Some thousand bytes inflate to millions of windows: each takes memory and an answer. Meanwhile all others wait."""
    session, data, frames, answers, least = MANY[what]
    driven, turns, found, said = session(), 0, 0, 0
    while not turns or driven.status().busy:
        driven.receive(b"" if turns else data, NOW_MS)
        turns += 1
        there = list(driven.frames())
        for frame in there:
            driven.stored(frame.ticket, 1, True)
        answer = driven.outgoing()
        while more := driven.outgoing():
            answer += more
        assert len(there) <= WORK // MESSAGE_WORK
        assert len(answer) <= 40 + WORK // MESSAGE_WORK * max(8, answers // max(1, frames))
        found, said = found + len(there), said + len(answer)
    driven.eof()
    assert (found, said) == (frames, answers)
    assert turns >= least
