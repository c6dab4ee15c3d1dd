"""The first message chooses the dialect."""

from __future__ import annotations

import pytest
from headrace_segment.session.limits import REPLIES, WAITING
from headrace_segment.session.original import OriginalSession
from headrace_segment.session.today import TodaySession
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import message

from tests.driving import NOW_MS, PEER, one_by_one
from tests.segment import speaking, speaking_today
from tests.segment.instant import LIMITS, Driven, drive
from tests.segment.recorded import EARLY, TODAY, W1

KEEP_ALIVE = speaking.keep_alive()  # the same bytes in both


@pytest.mark.parametrize("pieces", [lambda data: [data], one_by_one], ids=["whole", "byte by byte"])
def test_hello_chooses_todays(pieces: object) -> None:
    assert callable(pieces)
    assert drive(pieces(speaking_today.HELLO + KEEP_ALIVE)).said() == [today.Hello(17, 5), today.KeepAlive()]
    assert drive(pieces(KEEP_ALIVE)).said() == [original.KeepAlive(b"")]
    setup = drive(pieces(speaking.setup("a")))
    assert setup.said() == [original.AppendSetup("a", W1, 0)]


def test_the_recorded_greetings() -> None:
    assert drive([TODAY["hello"]["data"]]).said() == [today.Hello(17, 5)]
    old = drive([EARLY["hello"]["data"]])
    assert old.said() == [today.Hello(17, 5)]
    assert "wire versions 1 to 4" in str(old.error)


def test_hello_belongs_to_the_beginning() -> None:
    """Later it is answered again in today's dialect, and nothing in the original one."""
    assert drive([speaking_today.HELLO * 2]).said() == [today.Hello(17, 5)] * 2
    outcome = drive([KEEP_ALIVE + speaking_today.HELLO])
    assert outcome.said() == [original.KeepAlive(b"")]
    assert "type -127" in str(outcome.error)


@pytest.mark.parametrize("size", [1, 3])
def test_an_end_before_the_dialect_is_known(size: int) -> None:
    driven = Driven()
    driven.hear(speaking_today.HELLO[:size])
    assert driven.session.status().partial_bytes == size
    assert not driven.session.status().idle
    assert "inside its first message" in str(drive([speaking_today.HELLO[:size]]).error)


# What is to be said counts until it leaves, also of a client that reads all of it


def test_keep_alives_count_until_they_leave() -> None:
    session = OriginalSession(PEER, LIMITS)
    said = speaking.keep_alive(bytes(4096)) * 100
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
    session = TodaySession(PEER, LIMITS)
    said = speaking_today.HELLO + message(41, bytes(8)) * (3 * REPLIES)
    session.receive(said, NOW_MS)
    while session.status().busy:
        session.receive(b"", NOW_MS)
    assert session.status().waiting_bytes > 2 * REPLIES * WAITING
    while session.outgoing():
        pass
    assert session.status().waiting_bytes == 0


def test_a_few_replies_do_not_trouble_the_budgets() -> None:
    session = TodaySession(PEER, LIMITS)
    session.receive(speaking_today.HELLO + message(41, bytes(8)) * (REPLIES - 1), NOW_MS)
    while session.status().busy:
        session.receive(b"", NOW_MS)
    assert session.status().waiting_bytes == 0
