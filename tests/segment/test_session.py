"""The original dialect's session: levels, repeats, gaps, reads, and what ends a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_segment import questions as ask
from headrace_segment.session.conversation import READS
from headrace_segment.store import records
from headrace_segment.wire.original import AppendSetup, DataAppended, SegmentIsTruncated, SegmentRead

from tests.driving import one_by_one
from tests.segment.instant import Driven, Hears, Slow, drive
from tests.segment.recorded import W1, W2
from tests.segment.speaking import block, event, keep_alive, read, say, setup

HELLO = event(b"hello")
WORLD = event(b"world!")


def replies(*said: Any) -> bytes:
    return b"".join(map(say, said))


def level(value: int) -> bytes:
    return say(DataAppended(W1, value))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (block(1, HELLO), "a block from 1 to 14, but its writer is at 0"),
        (block(0, HELLO) + block(14, WORLD), "a block from 14 to 28, but its writer is at 13"),
        (block(0, HELLO) + block(0, WORLD), "a block from 0 to 14, but its writer is at 13"),
        (block(0, HELLO, W2), "not set up"),
    ],
)
def test_what_ends_the_conversation(data: bytes, words: str) -> None:
    whole = drive([setup() + data])
    assert words in str(whole.error)
    assert drive(one_by_one(setup() + data)).comparable() == whole.comparable()


def test_a_read_of_what_is_gone_hears_the_beginning() -> None:
    driven = Driven(answer=lambda question: ask.Refused(ask.Refusal.TRUNCATED, 7))
    assert driven.hear(read()) == replies(SegmentIsTruncated("a", 7))


# One thing at a time


def begun() -> Slow:
    """A conversation whose writer is set up."""
    slow = Slow()
    slow.hear(setup())
    slow.answer()
    return slow


def test_what_comes_before_the_level_is_known_waits() -> None:
    slow = Slow()
    assert slow.hear(setup(), setup("b", W2), block(0, HELLO), read("b"), keep_alive(b"x")) == keep_alive(b"x")
    assert not slow.frames
    assert slow.session.status().waiting_bytes > len(HELLO)
    assert slow.session.status().partial_bytes == 0  # no time limit of the client runs on it
    assert [type(each) for each in slow.questions] == [ask.OpenSession, ask.OpenSession]
    assert slow.answer() == replies(AppendSetup("a", W1, 0))
    assert slow.answer() == replies(AppendSetup("b", W2, 0))
    assert not slow.questions
    slow.store()
    assert [type(each) for each in slow.questions] == [ask.AppendBlock, ask.ReadBytes]


def test_a_second_setup_waits_for_the_blocks_before_it() -> None:
    slow = begun()
    slow.hear(block(0, HELLO), setup(), block(0, HELLO))
    assert not slow.questions
    slow.store()
    assert slow.answer() == level(13)
    assert slow.answer() == replies(AppendSetup("a", W1, 13)) + level(13)


def test_the_service_hears_when_a_reply_with_bytes_has_left() -> None:
    slow = begun()
    slow.hear(block(0, HELLO))
    slow.store()
    slow.answer()
    assert slow.hear(read()) == b""
    slow.session.answered(slow.questions.popleft().ticket, ask.BytesRead(HELLO, at_tail=False))
    assert slow.session.outgoing() == replies(SegmentRead("a", 0, 0, HELLO))
    assert not list(slow.session.questions())
    assert slow.session.outgoing() == b""
    (left,) = slow.session.questions()
    assert left == ask.RepliesLeft(left.ticket)
    slow.session.answered(left.ticket, None)


def test_only_so_many_reads_have_no_answer() -> None:
    slow = Slow()
    slow.hear(*[read(f"s-{number}") for number in range(READS)])
    slow.hear(setup())  # it waits for none of them
    assert isinstance(slow.questions[-1], ask.OpenSession)
    with pytest.raises(ProtocolError, match="reads without an answer"):
        slow.hear(read())


def test_after_a_loss_nothing_more_is_asked_for() -> None:
    slow = begun()
    slow.hear(block(0, HELLO), block(13, WORLD))
    slow.store()
    slow.session.answered(slow.questions.popleft().ticket, ask.OutcomeUnknown())
    assert slow.store() == b""
    assert not slow.questions


def test_many_refusals_end_a_conversation_once() -> None:
    slow = begun()
    slow.hear(block(0, HELLO), block(13, WORLD))
    slow.store()
    slow.store()
    slow.driven.store.answer(ask.OpenSession(1, "a", W1, records.Numbering.BYTES), Hears())
    with pytest.raises(ProtocolError):
        slow.answer()
    assert slow.answer() == b""
