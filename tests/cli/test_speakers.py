"""What `demo` says, heard by the receivers' sessions: every event is understood, and its acknowledgement too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from headrace_cli.speakers import HOW_TO, SPEAKERS
from headrace_common.record import decode
from headrace_common.session import Peer, Session
from headrace_common.settings import LimitSettings
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection

PEER = Peer("127.0.0.1", 1, "127.0.0.1")
SESSIONS: dict[str, Callable[[], Session]] = {
    "courier": lambda: CourierSession(PEER, CourierLimits(), CourierSection()),
    "forward": lambda: ForwardSession(PEER, LimitSettings(), ForwardSection()),
    "lumberjack": lambda: LumberjackSession(PEER, LimitSettings(), LumberjackSection()),
}


def test_every_protocol_that_demo_speaks_is_tried_and_explained() -> None:
    assert SESSIONS.keys() == SPEAKERS.keys() == HOW_TO.keys()


@pytest.mark.parametrize("protocol", SPEAKERS)
def test_what_demo_says_is_understood(protocol: str) -> None:
    speaker, session = SPEAKERS[protocol](), SESSIONS[protocol]()
    heard: list[Any] = []
    for first, count in ((0, 3), (3, 1), (4, 50)):
        session.receive(speaker.frame(first, count), 1_795_253_837_123)
        while session.busy():
            session.receive(b"", 1_795_253_837_123)
        acknowledged = 0
        for frame in session.frames():
            parts = [part for part in frame.parts() if isinstance(part, bytes)]
            heard += parts
            session.settle(frame.ticket, len(parts), True)
        while said := session.outgoing():
            acknowledged += speaker.receive(said)
        assert acknowledged == count
    assert [n for record in heard for n in range(54) if b'"n":%d,' % n in decode(record)[0]] == list(range(54))
    ids = {dict(decode(record)[1])["ce_id"] for record in heard}
    assert len(ids) == len(heard)
    assert all(name.startswith(b"d.") for name in ids)
