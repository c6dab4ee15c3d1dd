"""Memory follows what arrived, never what was announced. Limits on both sides are in `tests/fuzz/limits.py`."""

from __future__ import annotations

import itertools
import sys
import tracemalloc

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.memory import Memory
from headrace_lumberjack.session import EMPTY_WINDOWS, LumberjackSession
from headrace_lumberjack.wire import V1, json_frame, pairs_frame, window

from tests.driving import PEER, feed, parts_of, traced
from tests.lumberjack.driving import acks, document, session


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
        with pytest.raises(ProtocolError, match=f"more than {EMPTY_WINDOWS} windows without events"):
            feed(driven, window(0, version))
        (frame,) = driven.frames()
        driven.stored(frame.ticket, 1, True)
        assert len(acks(driven.outgoing())) == 1 + EMPTY_WINDOWS


def test_a_v1_event_that_dribbles_in_is_scanned_once() -> None:
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


def test_many_connections_share_what_they_remember() -> None:
    """A connection that sends a few hundred names and files, and then nothing, keeps nearly nothing of its own."""
    memory = Memory(1_000_000)
    sessions = []
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        for number in range(8):
            driven = LumberjackSession(PEER, LimitSettings(), memory)
            names = [f"{number}-{n}-" + "h" * (900 if n % 25 else 30_000) for n in range(250)]
            documents = [
                document(n, host={"name": name}, log={"file": {"path": name}, "offset": 1})
                for n, name in enumerate(names)
            ]
            feed(driven, window(250) + b"".join(json_frame(1 + n, raw) for n, raw in enumerate(documents)))
            for frame in driven.frames():
                assert len(parts_of(frame)) == 250
                driven.stored(frame.ticket, 250, True)
            driven.outgoing()
            sessions.append(driven)
            del documents, names, frame
        assert memory.used <= 1_000_000
        assert tracemalloc.get_traced_memory()[0] - before < 3_000_000
