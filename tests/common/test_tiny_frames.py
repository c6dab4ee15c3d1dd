"""A read of 60 KB that holds as many frames as the protocol allows: one call of a session does a bounded part, the loop turns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from headrace_common.session.interface import ByteSession
from headrace_courier.wire import identity, jdat
from headrace_lumberjack.wire import V1, json_frame, pairs_frame, window

from tests.courier import driving as courier
from tests.driving import NOW_MS
from tests.forward import driving as forward
from tests.lumberjack import driving as lumberjack

MOST = 256
"""Frames that one call hands out, at most: each costs about 10 µs."""

CASES: dict[str, tuple[Callable[[], ByteSession], bytes, int]] = {
    "forward": (forward.session, b"\x93\xa1t\x01\x80", 12_000),
    "forward-json": (forward.session, b'["t",1,{}]', 6_000),
    "lumberjack": (
        lumberjack.session,
        window(1) + json_frame(1, b"{}"),
        3_300,
    ),
    "lumberjack-v1": (
        lumberjack.session,
        window(1, V1) + pairs_frame(1, [(b"line", b"")]),
        2_000,
    ),
    "courier": (
        courier.session,
        jdat(bytes(16), [b"{}"]),
        1_400,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_one_call_hands_out_a_bounded_number_of_tiny_frames(name: str) -> None:
    make, frame, count = CASES[name]
    session = make()
    if name == "courier":
        session.receive(identity(b"HELO", "2.12.0", b"LCOR"), NOW_MS)
    handed: list[int] = []
    data = frame * count
    while data or session.status().busy:
        session.receive(data, NOW_MS)
        data = b""
        handed.append(len(list(session.frames())))
    assert sum(handed) == count
    assert max(handed) <= MOST
