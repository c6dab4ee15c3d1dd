"""The first message chooses the dialect."""

from __future__ import annotations

import pytest
from headrace_segment.wire import messages as today
from headrace_segment.wire import original

from tests.driving import one_by_one
from tests.segment import speaking, speaking_today
from tests.segment.instant import Driven, drive
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


def test_nothing_at_all() -> None:
    outcome = drive([])
    assert outcome.error is None
    assert outcome.idle


def test_both_dialects_read_each_others_segments() -> None:
    first, second = Driven(), Driven()
    second.store = first.store
    first.hear(speaking.setup("a"), speaking.block(0, speaking.events(b"by the original")))
    second.hear(speaking_today.HELLO)
    (read,) = drive([speaking_today.HELLO + speaking_today.read("a")], store=first.store).said()[1:]
    assert read.data == speaking.events(b"by the original")
    second.hear(
        speaking_today.setup("a", b"another writer.."),
        speaking_today.append(1, b"by today", writer=b"another writer.."),
    )
    (read,) = drive([speaking.read("a")], store=first.store).said()
    assert read.data == speaking.events(b"by the original", b"by today")
