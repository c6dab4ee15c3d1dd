"""What a connection keeps in its session while nothing is under way: in every protocol of streams."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession
from headrace_common.session.memory import Memory
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection

from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect, values
from tests.contract.forward import ForwardDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.segment import SegmentDialect, TodayDialect
from tests.driving import NOW_MS, PEER
from tests.forward import driving as forward
from tests.segment.instant import Driven

MOST = 6_000
"""Bytes. With its transport, its driver and its buffers in the kernel's socket, a connection has 10 KB."""

SHARED = Memory()
"""As in a service: what sessions of all connections have encoded once."""


def store(session: ByteSession) -> None:
    """Stores all that the session hands out, and hears its answers."""
    for frame in list(session.frames()):
        parts = frame.at_once() if frame.small else [part for part in frame.parts() if part]
        session.stored(frame.ticket, len(parts or ()), True)
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
    (CourierDialect(), plain(lambda: CourierSession(PEER, CourierLimits(), CourierSection(), memory=SHARED))),
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
    assert all(session.status().idle or not events for session in kept)
    assert held / count <= MOST
