"""The conversation: who may say what, and when what is acknowledged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from headrace_common import receiver
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import ServiceSettings
from headrace_common.session.client import Remark
from headrace_courier.client import Acknowledged, CourierReplies
from headrace_courier.protocol import build
from headrace_courier.session import TICK
from headrace_courier.wire import COMPLAINT, HEADER, PING, PONG, MessageKind, acknowledgement, identity, jdat

from tests.courier.driving import HELO, NONCE, drive, every_way, evnt, numbered, session
from tests.driving import PEER, feed

OTHER = bytes(reversed(NONCE))

# Who may say what

HELLO = HEADER.pack(b"HELO", 32) + b"\x7f" * 32
WHAT = HEADER.pack(b"WHAT", 3) + b"abc"
NEWS = HEADER.pack(b"NEWS", 70_000) + bytes(70_000)
VERSION, UNKNOWN, COMPLAINED, PONGED = Remark("VERS"), Remark("????"), MessageKind.COMPLAINT, Remark("PONG")


@pytest.mark.parametrize(
    ("data", "replies", "ignored"),
    [
        *((HEADER.pack(b"HELO", length) + HELLO[-32:][:length], [VERSION], {}) for length in (0, 1, 19, 20, 31, 32)),
        # Older clients begin with another word; their later HELO is not known any more.
        *((make(NONCE, []) + HELO, [Acknowledged(NONCE, 0), UNKNOWN], {MessageKind.UNKNOWN: 1}) for make in (jdat, evnt)),
        (PING + HELO, [PONGED, UNKNOWN], {MessageKind.UNKNOWN: 1}),
        (WHAT + HELO, [UNKNOWN, UNKNOWN], {MessageKind.UNKNOWN: 2}),
        *(
            (HELO + HEADER.pack(b"HELO", length) + bytes(length) + PING, [VERSION, UNKNOWN, PONGED], {MessageKind.UNKNOWN: 1})
            for length in (0, 32, 33, 5000)
        ),
        (NEWS + HEADER.pack(b"X  Y", 0) + PING, [UNKNOWN, UNKNOWN, PONGED], {MessageKind.UNKNOWN: 2}),
        (COMPLAINT + HEADER.pack(b"????", 9) + bytes(9) + PING, [PONGED], {COMPLAINED: 2}),
    ],
)  # fmt: skip
def test_who_may_say_what(data: bytes, replies: list[Any], ignored: dict[MessageKind, int]) -> None:
    outcome = every_way(data)
    assert outcome.error is None
    assert outcome.ignored == ignored
    assert sorted(map(repr, outcome.replies)) == sorted(map(repr, replies))  # a PONG overtakes what waits


def test_what_is_ignored_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "stream_listeners", lambda runtime, port, make: make)
    runtime: Any = SimpleNamespace(settings=ServiceSettings(), metrics=ReceiverMetrics())
    make: Any = build(runtime).listeners
    feed(make(PEER), HELO + COMPLAINT + WHAT + WHAT)
    told = runtime.metrics.registry.get_sample_value
    counts = [told("headrace_messages_ignored_total", {"kind": kind}) for kind in ("complaint", "unknown")]
    assert counts == [1, 2]


def test_our_version_of_32_bytes_says_evnt() -> None:
    driven = session()
    feed(driven, HELO)
    reply = driven.outgoing()
    assert len(reply) == 40
    assert reply[:12] == HEADER.pack(b"VERS", 32) + b"\x01\0\0\0"
    assert reply[24:] == b"HDRC" + bytes(12)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (PONG, "only a server sends that"),
        (acknowledgement(NONCE, 1), "only a server sends that"),
        (identity(b"VERS", "2.12.0", b"LCOR"), "only a server sends that"),
        (HEADER.pack(b"PING", 1) + b"x", "a PING with a body"),
        (HEADER.pack(b"NEWS", 0xFFFFFFFF), "a message of 4294967295 bytes"),
        (HEADER.pack(b"????", 0xFFFFFFFF), "a message of 4294967295 bytes"),
        (HEADER.pack(b"EVNT", 500) + bytes(500), "an EVNT of 500 bytes"),
        (HEADER.pack(b"JDAT", 0xFFFFFFFF) + bytes(500), "a message of 4294967295 bytes"),
        (HEADER.pack(b"JDAT", 16) + bytes(16), "has no payload"),
        (HEADER.pack(b"JDAT", 0), "has no payload"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "not a message"),
        (b"jd\n\0\0\0\0\1", "not a message"),
        (b"GET / HTTP/1.1\r\n\r\n", "a message of"),
    ],
)
def test_what_ends_the_conversation(message: bytes, problem: str) -> None:
    """What stood before it is stored and acknowledged, what stands behind it is not."""
    before = HELO + jdat(NONCE, numbered(3))
    outcome = every_way(before + message + jdat(OTHER, numbered(3)))
    assert outcome.error is not None
    assert problem in str(outcome.error)
    assert outcome.error.offset == len(before)
    assert outcome.error.sample.startswith(message[:8])
    assert len(outcome.events) == 3
    assert outcome.acknowledged == [(NONCE, 3)]


@pytest.mark.parametrize("count", [0, 2])
def test_a_payload_whose_end_comes_later_is_acknowledged_once(count: int) -> None:
    """All its events may be stored before the publisher knows that there are no more."""
    driven, replies, said = session(), CourierReplies(), list[Any]()
    feed(driven, jdat(NONCE, numbered(count)))
    (frame,) = driven.frames()
    for stored, whole in ((count // 2, False), (count, False), (count, True)):
        driven.stored(frame.ticket, stored, whole)
        said += replies.receive(driven.outgoing())
    assert said == [Acknowledged(NONCE, number) for number in sorted({count // 2, count})]


def test_an_end_that_comes_later_is_no_life_sign() -> None:
    """No ACKN leaves for it, so the next payload's is due as if nothing had come."""
    driven, replies = session(), CourierReplies()
    driven.tick(0.0)
    feed(driven, jdat(NONCE, numbered(2)) + jdat(OTHER, numbered(1)))
    first, _ = driven.frames()
    driven.stored(first.ticket, 2, False)
    assert replies.receive(driven.outgoing()) == [Acknowledged(NONCE, 2)]
    driven.tick(TICK)
    driven.stored(first.ticket, 2, True)
    assert driven.outgoing() == b""
    driven.tick(2 * TICK)
    assert replies.receive(driven.outgoing()) == [Acknowledged(OTHER, 0)]


def test_what_may_not_come_first() -> None:
    assert "33 bytes" in str(every_way(HEADER.pack(b"HELO", 33) + bytes(33)).error)


@pytest.mark.parametrize("make", [jdat, evnt])
def test_an_end_inside_a_message_is_a_fault(make: object) -> None:
    message = make(NONCE, numbered(1))  # type: ignore[operator]
    for cut in range(1, len(message)):
        outcome = drive([HELO + message[:-cut]])
        assert outcome.error is not None
        assert outcome.error.offset == len(HELO)
        assert outcome.acknowledged == []
