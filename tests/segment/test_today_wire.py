"""Today's dialect's decoder: how blocks come, and what ends the conversation."""

from __future__ import annotations

import pytest
from headrace_segment.wire import messages as said
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.messages import MESSAGES, AppendBlockEnd
from headrace_segment.wire.parser import Block

from tests.segment.decoding import every_way_today
from tests.segment.recorded import W1, W2
from tests.segment.speaking import event, raw
from tests.segment.speaking_today import append_block

say = MESSAGES.encode


def end(whole: int, data: bytes = b"", count: int = 1, writer: bytes = W1) -> bytes:
    return say(AppendBlockEnd(writer, whole, data, count, 7, 3))


HELLO = event(b"hello")


@pytest.mark.parametrize(
    "data",
    [
        append_block(W1, HELLO) + end(13),
        end(0, HELLO),
        end(len(HELLO), HELLO),  # Pravega's Rust client, and Python's, which is made of it
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, b"")) + end(0, HELLO),
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, HELLO)) + end(0),
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, HELLO[:9])) + end(0, HELLO[9:]),
        append_block(W1, HELLO + raw(Kind.PADDING, bytes(40))) + end(13),
        append_block(W1, b"") + end(0, HELLO),
        raw(Kind.PADDING, bytes(3)) + append_block(W1, HELLO) + end(13),
    ],
)
def test_a_block_in_every_shape(data: bytes) -> None:
    assert every_way_today(data) == ([Block(W1, None, 7, HELLO, 1, 3)], None, True)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (append_block(W1, HELLO) + say(said.KeepAlive()), "type 100 in a block"),
        (append_block(W1, HELLO) + append_block(W1, HELLO), "type 3 in a block"),
        (append_block(W1, HELLO) + end(13, writer=W2), "another writer"),
        (append_block(W1, HELLO) + end(14), "14 of 13"),
        (append_block(W1, HELLO) + end(-1), "-1 of 13"),
        (append_block(W1, HELLO) + end(13, count=-1), "negative number of events"),
        (append_block(W1, HELLO + b"abc") + end(13), "inside a header"),
        (append_block(W1, HELLO + HELLO) + end(13), "at the end of a block"),
        (append_block(W1, HELLO + raw(Kind.PADDING, b"") + b"x") + end(13), "at the end of a block"),
        (raw(Kind.BEGIN_APPEND_BLOCK, W1[:15]), "without a writer"),
        (HELLO, "type 0 from a client"),
        (raw(Kind.PARTIAL_MESSAGE, b""), "type -2 from a client"),
        (say(said.ReadSegment("a", -1, 5)), "negative"),
        (raw(Kind.HELLO, bytes(7)), "inside a field"),
        (HEADER.pack(1, 1 << 24), "upper byte"),
    ],
)
def test_what_ends_the_conversation(data: bytes, words: str) -> None:
    _, error, _ = every_way_today(data)
    assert error is not None
    assert words in error[0]


def test_the_end_of_a_message_may_lack_fields_and_may_grow() -> None:
    whole = say(said.CreateSegment(1, "a", 0, 0))
    assert every_way_today(raw(Kind.CREATE_SEGMENT, whole[8:-10])) == ([said.CreateSegment(1, "a", 0, 0)], None, True)
    grown = raw(Kind.GET_SEGMENT_INFO, say(said.GetSegmentInfo(1, "a", "t"))[8:] + b"something new")
    assert every_way_today(grown) == ([said.GetSegmentInfo(1, "a", "t")], None, True)


@pytest.mark.parametrize("data", [HEADER.pack(100, 101), append_block(W1, event(bytes(60))) + end(68, bytes(50))])
def test_the_limit_of_a_frame(data: bytes) -> None:
    _, error, _ = every_way_today(data, 100)
    assert error is not None
    assert error[1] == "LIMITS__FRAME_BYTES"
