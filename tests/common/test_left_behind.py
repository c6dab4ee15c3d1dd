"""A session that its connection has left is freed at once: the cycle collector may not come for hours."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from headrace_common.operations.settings import MIB
from headrace_common.session.interface import ByteSession
from headrace_courier.wire import identity, jdat
from headrace_lumberjack.wire import V1, compressed, window
from headrace_segment.session.dialects import SegmentSession

from tests.common.test_connection import Bench
from tests.courier import driving as courier
from tests.driving import PEER
from tests.forward import driving as forward
from tests.lumberjack import driving as lumberjack
from tests.segment.instant import LIMITS

BOMB = bytes(5 * MIB)

WRONG: dict[str, tuple[Callable[[], ByteSession], bytes]] = {
    "forward": (forward.session, b"\xff"),
    "forward-json": (forward.session, b"[}"),
    "lumberjack": (lumberjack.session, b"\xff"),
    "lumberjack-bomb": (
        lambda: lumberjack.session(inflated_bytes=4 * MIB),
        window(1, V1) + compressed(BOMB, 9, V1),
    ),
    "courier": (courier.session, b"\xff" * 8),
    "courier-bomb": (
        lambda: courier.session(inflated_bytes=4 * MIB),
        identity(b"HELO", "2.12.0", b"LCOR") + jdat(bytes(16), [BOMB], level=9),
    ),
    "segment": (lambda: SegmentSession(PEER, LIMITS), b"\xff" * 8),
}
"""Sessions, and what ends them."""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made.clock)
    gc.disable()
    yield made
    gc.enable()


@pytest.mark.parametrize("protocol", WRONG)
def test_what_broke_the_protocol_is_freed_at_once(bench: Bench, protocol: str) -> None:
    make, wrong = WRONG[protocol]
    session: ByteSession | None = make()
    left = weakref.ref(session)
    connection, transport = bench.connect(session)
    session = None
    connection.data_received(wrong)
    while connection.incoming.is_behind():
        connection.digest()
    transport.close()
    bench.clock.rest()
    assert bench.closed("protocol_error")
    assert left() is None
