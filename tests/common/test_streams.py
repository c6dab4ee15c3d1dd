"""Sessions of every protocol of streams: what they keep between frames and leave behind, and what one call does."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable

import pytest
from headrace_common.operations.settings import MIB
from headrace_common.session.interface import ByteSession
from headrace_common.session.memory import ENTRY_BYTES, LARGEST, Memory
from headrace_courier.wire import jdat
from headrace_lumberjack.wire import compressed, json_frame, window
from headrace_segment.session.conversation import SegmentSession

from tests.common.slowly import SlowLoop
from tests.common.test_connection import Bench
from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect, values
from tests.contract.forward import ForwardDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.segment import SegmentDialect, TodayDialect
from tests.courier import driving as courier
from tests.driving import NOW_MS, PEER, traced
from tests.explaining import Receiver
from tests.forward import driving as forward
from tests.lumberjack import driving as lumberjack
from tests.segment import speaking_today
from tests.segment.instant import LIMITS, SECTION

LOOP = SlowLoop

MOST_KEPT = 6_000
"""Bytes. With its transport, its driver and its buffers in the kernel's socket, a connection has 10 KB."""

TALKS: dict[str, Dialect] = {
    "forward": ForwardDialect(),
    "lumberjack": LumberjackDialect(),
    "courier": CourierDialect(),
    "segment": SegmentDialect(),
    "segment, today": TodayDialect(),
}


@pytest.mark.parametrize("events", [0, 300], ids=["silent", "60-kb"])
@pytest.mark.parametrize("name", TALKS)
def test_a_connection_keeps_little_between_frames(name: str, events: int) -> None:
    """Once what it has sent is stored and acknowledged. 10,000 connections are then 150 MB."""
    count, dialect = 8, TALKS[name]
    data = [dialect.conversation().frame(values(events, text="x" * 150)) if events else b"" for _ in range(2 * count)]

    def talked(sent: bytes) -> ByteSession:
        receiver = Receiver(name.partition(",")[0])
        assert receiver.feed(bytes(bytearray(sent)), NOW_MS) or not sent  # as a transport gives it: nobody else has it
        return receiver.session

    kept = [talked(each) for each in data[:count]]  # what is made once for all is there
    gc.collect()
    with traced():
        kept += [talked(each) for each in data[count:]]
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    assert all(not (session.status().partial_bytes and events) for session in kept)
    assert held / count <= MOST_KEPT


# A session that its connection has left is freed at once: the cycle collector may not come for hours


BOMB = bytes(5 * MIB)
MAKE: dict[str, Callable[..., ByteSession]] = {
    "forward": forward.session,
    "lumberjack": lumberjack.session,
    "courier": courier.session,
    "segment": lambda: SegmentSession(PEER, LIMITS, SECTION),
}
LEFT: list[tuple[str, bytes, dict[str, int]]] = [
    ("forward", b"\xff", {}),
    ("forward", b"[}", {}),
    ("lumberjack", b"\xff\xff", {}),
    ("lumberjack", window(1) + compressed(json_frame(1, BOMB), 9), {"inflated_bytes": 4 * MIB}),
    ("courier", b"\xff" * 8, {}),
    ("courier", courier.HELO + jdat(bytes(16), [BOMB], level=9), {"inflated_bytes": 4 * MIB}),
    ("segment", b"\xff" * 8, {}),
    # Halves: a thousand that were reset held thirty gigabytes, which no budget counted, until a collection.
    ("forward", b"\x93\xa1t\xc6\0\1\0\0" + bytes(1000), {}),
    ("forward", b'["t",["', {}),
    ("lumberjack", window(1) + json_frame(1, bytes(1000))[:-1], {}),
    ("courier", courier.HELO + jdat(bytes(16), [bytes(1000)])[:-1], {}),
    ("segment", speaking_today.HELLO[:-1], {}),
]
"""What breaks each protocol, and beginnings of frames."""


@pytest.mark.parametrize(("protocol", "sent", "limits"), LEFT, ids=lambda value: value if type(value) is str else "")
async def test_who_breaks_the_protocol_or_goes_is_freed(protocol: str, sent: bytes, limits: dict[str, int]) -> None:
    session: ByteSession | None = MAKE[protocol](**limits)
    bench = Bench()
    gc.disable()
    try:
        connection, transport = await bench.connect(session)
        connection.data_received(sent)
        while connection.is_behind():
            connection.work(0.0)
        left = weakref.ref(session and (session._decoder or session))
        session = None
        transport.close()
        await bench.rest()
        assert left() is None
    finally:
        gc.enable()


# What sessions remember for many events: bounded in bytes


def test_a_memory_never_holds_more_than_its_limit() -> None:
    limit = 4 * LARGEST
    memory = Memory(limit)
    for number in range(5000):
        memory.put(number, number, number % 700)
        memory.get(number // 2)
        assert memory.used <= limit
    assert memory.get(4999) == 4999
    assert memory.get(0) is None
    memory.put("fits", 1, LARGEST - ENTRY_BYTES)
    memory.put("does not", 1, LARGEST - ENTRY_BYTES + 1)
    assert (memory.get("fits"), memory.get("does not")) == (1, None)
