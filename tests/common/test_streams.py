"""Sessions of every protocol of streams: what they keep between frames and leave behind, and what one call does."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable

import pytest
from headrace_common.operations.settings import MIB, LimitSettings
from headrace_common.session.interface import ByteSession
from headrace_common.session.memory import Memory
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits
from headrace_courier.wire import jdat
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import V1, compressed, json_frame, pairs_frame, window
from headrace_segment.session.conversation import SegmentSession

from tests.common.slowly import SlowLoop
from tests.common.test_connection import Bench
from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect, values
from tests.contract.forward import ForwardDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.segment import SegmentDialect, TodayDialect
from tests.courier import driving as courier
from tests.driving import NOW_MS, PEER
from tests.forward import driving as forward
from tests.lumberjack import driving as lumberjack
from tests.segment.instant import LIMITS, SECTION, Driven

LOOP = SlowLoop

MOST_KEPT = 6_000
"""Bytes. With its transport, its driver and its buffers in the kernel's socket, a connection has 10 KB."""

SHARED = Memory()
"""As in a service: what sessions of all connections have encoded once."""


def store(session: ByteSession) -> None:
    """Stores all that the session hands out, and hears its answers."""
    for frame in list(session.frames()):
        parts = list(frame.parts())
        session.stored(frame.ticket, len(parts), True)
    while session.outgoing():
        pass


def plain(make: Callable[[], ByteSession]) -> Callable[[bytes], ByteSession]:
    def talk(data: bytes) -> ByteSession:
        session = make()
        session.receive(bytes(bytearray(data)), NOW_MS)  # as a transport gives them: nobody else has them
        while session.status().busy:
            session.receive(b"", NOW_MS)
        store(session)
        return session

    return talk


def segments(data: bytes) -> ByteSession:
    driven = Driven()
    driven.session.receive(bytes(bytearray(data)), NOW_MS)  # as a transport gives them: nobody else has them
    driven.serve()
    while driven.session.status().busy:
        driven.session.receive(b"", NOW_MS)
        driven.serve()
    return driven.session


TALKS: list[tuple[Dialect, Callable[[bytes], ByteSession]]] = [
    (ForwardDialect(), plain(forward.session)),
    (LumberjackDialect(), plain(lambda: LumberjackSession(PEER, LimitSettings(), LumberjackSection(), SHARED))),
    (CourierDialect(), plain(lambda: CourierSession(PEER, CourierLimits(), memory=SHARED))),
    (SegmentDialect(), segments),
    (TodayDialect(), segments),
]


@pytest.mark.parametrize("events", [0, 1, 300], ids=["silent", "one-event", "60-kb"])
@pytest.mark.parametrize(
    ("dialect", "talk"), TALKS, ids=["forward", "lumberjack", "courier", "segment", "segment-today"]
)
def test_a_connection_keeps_little_between_frames(
    dialect: Dialect, talk: Callable[[bytes], ByteSession], events: int
) -> None:
    """Once what it has sent is stored and acknowledged. 10,000 connections are then 150 MB."""
    count = 8
    data = [dialect.conversation().frame(values(events, text="x" * 150)) if events else b"" for _ in range(2 * count)]
    kept = [talk(each) for each in data[:count]]  # what is made once for all is there
    gc.collect()
    tracemalloc.start()
    try:
        kept += [talk(each) for each in data[count:]]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert all(not (session.status().partial_bytes and events) for session in kept)
    assert held / count <= MOST_KEPT


# A read of 60 KB that holds as many frames as the protocol allows: one call of a session does a bounded part, the loop turns


MOST_FRAMES = 256
"""Frames that one call hands out, at most: each costs about 10 µs."""

CASES: dict[str, tuple[Callable[[], ByteSession], bytes, int]] = {
    "forward": (forward.session, b"\x93\xa1t\x01\x80", 12_000),
    "forward-json": (forward.session, b'["t",1,{}]', 6_000),
    "lumberjack": (lumberjack.session, window(1) + json_frame(1, b"{}"), 3_300),
    "lumberjack-v1": (lumberjack.session, window(1, V1) + pairs_frame(1, [(b"line", b"")]), 2_000),
    "courier": (courier.session, jdat(bytes(16), [b"{}"]), 1_400),
}


@pytest.mark.parametrize("name", CASES)
def test_one_call_hands_out_a_bounded_number_of_tiny_frames(name: str) -> None:
    make, frame, count = CASES[name]
    session = make()
    if name == "courier":
        session.receive(courier.HELO, NOW_MS)
    handed: list[int] = []
    data = frame * count
    while data or session.status().busy:
        session.receive(data, NOW_MS)
        data = b""
        handed.append(len(list(session.frames())))
    assert sum(handed) == count
    assert max(handed) <= MOST_FRAMES


# A session that its connection has left is freed at once: the cycle collector may not come for hours


BOMB = bytes(5 * MIB)

WRONG: dict[str, tuple[Callable[[], ByteSession], bytes]] = {
    "forward": (forward.session, b"\xff"),
    "forward-json": (forward.session, b"[}"),
    "lumberjack": (lumberjack.session, b"\xff\xff"),
    "lumberjack-bomb": (
        lambda: lumberjack.session(inflated_bytes=4 * MIB),
        window(1) + compressed(json_frame(1, BOMB), 9),
    ),
    "courier": (courier.session, b"\xff" * 8),
    "courier-bomb": (
        lambda: courier.session(inflated_bytes=4 * MIB),
        courier.HELO + jdat(bytes(16), [BOMB], level=9),
    ),
    "segment": (lambda: SegmentSession(PEER, LIMITS, SECTION), b"\xff" * 8),
}
"""Sessions, and what ends them."""


@pytest.mark.parametrize("protocol", WRONG)
async def test_what_broke_the_protocol_is_freed_at_once(protocol: str) -> None:
    make, wrong = WRONG[protocol]
    session: ByteSession | None = make()
    left, bench = weakref.ref(session), Bench()
    gc.disable()
    try:
        connection, transport = await bench.connect(session)
        session = None
        connection.data_received(wrong)
        while connection.is_behind():
            connection.digest()
        transport.close()
        await bench.rest()
        assert bench.closed("protocol_error")
        assert left() is None
    finally:
        gc.enable()
