"""The conversation: who may say what, and when what is acknowledged."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Remark
from headrace_courier.client import Acknowledged
from headrace_courier.wire import COMPLAINT, HEADER, PING, PONG, MessageKind, acknowledgement, evnt, identity, jdat

from tests.courier.driving import (
    HELO,
    NONCE,
    NOW_MS,
    content,
    digest,
    drive,
    every_way,
    numbered,
    payload,
    said,
    session,
)

OTHER = bytes(reversed(NONCE))
EVERY = 5.0
"""Seconds between two signs of life, at most."""


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


def test_our_version_is_32_bytes_and_says_that_evnt_is_spoken() -> None:
    driven = session()
    digest(driven, HELO)
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


# Acknowledgements


def test_nothing_is_acknowledged_once_something_was_abandoned() -> None:
    driven = session()
    digest(driven, jdat(NONCE, numbered(5)) + jdat(OTHER, numbered(4)))
    first, second = driven.frames()
    driven.stored(first.ticket, 2, False)
    driven.abandon(first.ticket)
    driven.stored(second.ticket, 4, True)
    driven.tick(100)
    driven.tick(200)
    assert said(driven) == []
    assert driven.deadline() is None


# Time


def run_clock(driven: object, since: float, seconds: float) -> list[tuple[float, bytes, int]]:
    """Ticks when asked to, as a connection does; when which acknowledgement was said."""
    heard, now = [], since
    while (due := driven.deadline()) is not None and due <= since + seconds:  # type: ignore[attr-defined]
        now = max(now, due)
        driven.tick(now)  # type: ignore[attr-defined]
        heard += [(now, nonce, count) for nonce, count in said(driven)]  # type: ignore[arg-type]
        assert driven.deadline() is None or driven.deadline() > now  # type: ignore[attr-defined]
    return heard


def apart(since: float, heard: list[tuple[float, bytes, int]], until: float) -> float:
    times = [since, *(at for at, _, _ in heard), until]
    return max(after - before for before, after in itertools.pairwise(times))


def test_while_kafka_is_slow_the_oldest_acknowledgement_is_said_again() -> None:
    driven = session()
    digest(driven, jdat(NONCE, numbered(5)) + jdat(OTHER, numbered(4)))
    first, second = driven.frames()
    began = 1000.0
    heard = run_clock(driven, began, 60)
    assert {(nonce, count) for _, nonce, count in heard} == {(NONCE, 0)}
    assert apart(began, heard, began + 60) <= EVERY - 1
    driven.stored(second.ticket, 4, True)
    driven.stored(first.ticket, 3, False)
    assert said(driven) == [(NONCE, 3)]
    heard = run_clock(driven, began + 60, 60)
    assert {(nonce, count) for _, nonce, count in heard} == {(NONCE, 3)}
    assert apart(began + 60, heard, began + 120) <= EVERY - 1
    driven.stored(first.ticket, 5, True)
    assert said(driven) == [(NONCE, 5), (OTHER, 4)]
    assert run_clock(driven, began + 120, 60) == []


@pytest.mark.parametrize("make", [jdat, evnt])
def test_while_a_payload_arrives_its_client_hears_0(make: object) -> None:
    data = make(NONCE, numbered(50))  # type: ignore[operator]
    driven = session()
    driven.receive(data[:20], NOW_MS)
    assert driven.deadline() is None  # its nonce is not complete
    driven.receive(data[20:30], NOW_MS)
    heard = run_clock(driven, 500.0, 30)
    assert {(nonce, count) for _, nonce, count in heard} == {(NONCE, 0)}
    assert apart(500.0, heard, 530.0) <= EVERY - 1
    driven.receive(data[30:], NOW_MS)
    assert len(list(driven.frames())) == 1


def test_no_payload_that_arrives_is_kept_alive_before_an_older_one() -> None:
    driven = session()
    digest(driven, jdat(NONCE, numbered(5)) + jdat(OTHER, numbered(4))[:-3])
    (frame,) = driven.frames()
    assert {nonce for _, nonce, _ in run_clock(driven, 0.0, 20)} == {NONCE}
    driven.stored(frame.ticket, 5, True)
    assert said(driven) == [(NONCE, 5)]
    assert {(nonce, count) for _, nonce, count in run_clock(driven, 20.0, 20)} == {(OTHER, 0)}


def test_after_a_fault_only_what_is_complete_is_kept_alive() -> None:
    driven = session()
    with pytest.raises(ProtocolError):
        digest(driven, jdat(NONCE, numbered(5)) + payload(content(numbered(5)), OTHER, kind=b"EVNT", flip=-1))
    (frame,) = driven.frames()
    assert {nonce for _, nonce, _ in run_clock(driven, 0.0, 20)} == {NONCE}
    driven.stored(frame.ticket, 5, True)
    assert said(driven) == [(NONCE, 5)]
    assert driven.deadline() is None
    with pytest.raises(ProtocolError):
        driven.receive(jdat(NONCE, numbered(5)), NOW_MS)
