"""What is to be said counts until it leaves: more comes in than goes out at once, also of a client that reads all of it."""

from __future__ import annotations

from headrace_common.session.interface import Peer
from headrace_segment.session.limits import REPLIES, WAITING, Limits
from headrace_segment.session.original import OriginalSession
from headrace_segment.session.today import TodaySession
from headrace_segment.wire.codes import message

from tests.driving import NOW_MS
from tests.segment import speaking_today
from tests.segment.speaking import keep_alive

LIMITS = Limits(1 << 20, 1 << 20, 1 << 20, 1024, 10)


def test_keep_alives_count_until_they_leave() -> None:
    session = OriginalSession(Peer("192.0.2.1", 1, "a"), LIMITS)
    said = keep_alive(bytes(4096)) * 100
    session.receive(said, NOW_MS)
    assert session.status().waiting_bytes >= 100 * 4096
    assert not session.status().idle
    heard = b""
    before = session.status().waiting_bytes
    while more := session.outgoing():
        heard += more
        assert session.status().waiting_bytes < before
        before = session.status().waiting_bytes
    assert heard == said
    assert session.status().waiting_bytes == 0
    assert session.status().idle


def test_replies_count_when_they_are_many() -> None:
    """Each is longer than what it answers, where the segment's name is long."""
    session = TodaySession(Peer("192.0.2.1", 1, "a"), LIMITS)
    said = speaking_today.HELLO + message(41, bytes(8)) * (3 * REPLIES)
    session.receive(said, NOW_MS)
    while session.status().busy:
        session.receive(b"", NOW_MS)
    assert session.status().waiting_bytes > 2 * REPLIES * WAITING
    while session.outgoing():
        pass
    assert session.status().waiting_bytes == 0


def test_a_few_replies_do_not_trouble_the_budgets() -> None:
    session = TodaySession(Peer("192.0.2.1", 1, "a"), LIMITS)
    session.receive(speaking_today.HELLO + message(41, bytes(8)) * (REPLIES - 1), NOW_MS)
    while session.status().busy:
        session.receive(b"", NOW_MS)
    assert session.status().waiting_bytes == 0
