"""Today's dialect's session: versions, levels, changes of segments, and what ends a conversation."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_segment import questions as ask
from headrace_segment.session.conversation import REPLIES, WAITING, SegmentSession
from headrace_segment.settings import SegmentSection
from headrace_segment.store import records
from headrace_segment.wire import original
from headrace_segment.wire import today as said

from tests.driving import NOW_MS, PEER, one_by_one, with_constants
from tests.segment.instant import LIMITS, SECTION, Conversation, Driven, InstantStore, drive, read_replies
from tests.segment.recorded import W1, W2
from tests.segment.speaking import events, raw
from tests.segment.speaking_today import (
    HELLO,
    KEEP_ALIVE,
    NO_LEVEL,
    REQUEST,
    append,
    append_bytes,
    create,
    info,
    read,
    say,
    setup,
)


class Talk(Driven):
    """A conversation that has begun with Hello."""

    def __post_init__(self) -> None:
        super().__post_init__()
        super().hear(HELLO)

    def says(self, *data: bytes) -> list[Any]:
        """What it answers."""
        return read_replies(self.hear(*data), said.MESSAGES)


def created() -> tuple[InstantStore, Talk]:
    store = InstantStore()
    store.append("a", records.Create())
    return store, Talk(store)


def both_ways(data: bytes) -> Conversation:
    """What comes of it, whole and byte by byte."""
    whole = drive([data])
    assert drive(one_by_one(data)).comparable() == whole.comparable()
    return whole


SET_UP = said.AppendSetup(REQUEST, "a", W1, NO_LEVEL)


def appended(level: int, previous: int, length: int, request: int = REQUEST) -> Any:
    return said.DataAppended(W1, level, previous, request, length)


# Versions


@pytest.mark.parametrize(("high", "low"), [(5, 5), (11, 5), (17, 17), (99, 5), (4, 1), (99, 18)])
def test_versions(high: int, low: int) -> None:
    outcome, meet = drive([say(said.Hello(high, low)) + KEEP_ALIVE]), high >= 5 and low <= 17
    assert outcome.said() == [said.Hello(17, 5), said.KeepAlive()][: 1 + meet]
    assert (outcome.error is None) is meet


# Levels


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (append_bytes(7, b"no frames"), b"no frames"),
        (append_bytes(7, b"\0\0\0\0\0\0\0\3ab"), b"\0\0\0\0\0\0\0\3ab"),
        (append(7, b"x", b"x", b"x", count=2), events(b"x", b"x", b"x")),
        (append(7, b"x", b"x", b"x", count=0), events(b"x", b"x", b"x")),
        (append(6, b"x", b"x", b"x"), events(b"x", b"x", b"x")),
    ],
    ids=["no frames", "half a frame", "another count", "no count", "fewer numbers than events"],
)
def test_a_block_without_numbers_of_its_events_is_one(block: bytes, data: bytes) -> None:
    store, talk = created()
    talk.hear(setup(), append(4, b"x"), block)
    assert [event.value for event in talk.outcome.events] == [b"x", data]
    assert store.content("a") == events(b"x") + data


@pytest.mark.parametrize("level", [3, 2, -(1 << 63)])
def test_an_event_number_that_does_not_rise_ends_the_conversation(level: int) -> None:
    store, talk = created()
    talk.hear(setup(), append(3, b"x"))
    assert talk.says(append(level, b"y")) == []
    assert "does not rise" in str(talk.outcome.error)
    assert store.content("a") == events(b"x")


# Segments


def test_a_segment_that_is_not_there() -> None:
    talk = Talk()
    gone = said.NoSuchSegment(REQUEST, "a")
    for asked in (info(), setup()):
        assert talk.says(asked) == [gone]
    assert talk.says(read(offset=5)) == [said.NoSuchSegment(REQUEST, "a", "", 5)]
    assert talk.outcome.error is None
    assert talk.says(append(1, b"on its way")) == []
    assert "not set up" in str(talk.outcome.error)
    assert talk.outcome.parts == []


@pytest.mark.parametrize(("asked", "least"), [(-1, 8), (0, 8), (7, 8), (9, 9), (1 << 30, 100)])
def test_how_much_a_read_brings(asked: int, least: int) -> None:
    store, talk = created()
    talk.hear(setup(), append(1, bytes(500)))
    reader = Talk(store, section=with_constants(SegmentSection, {"reply_bytes": 100})())
    (found,) = reader.says(read(length=asked))
    assert (len(found.data), found.at_tail) == (least, False)


@pytest.mark.parametrize(("asked", "limit"), [(create(), "SEGMENT__SEGMENTS"), (setup(), "SEGMENT__WRITERS")])
def test_a_limit_of_the_service(asked: bytes, limit: str) -> None:
    talk = Talk(answer=lambda question: ask.Refused(ask.Refusal(limit)))
    talk.hear(asked)
    assert talk.outcome.error is not None
    assert talk.outcome.error.limit == limit


def test_create_append_and_read_in_one_breath() -> None:
    talk = Talk()
    found = talk.says(create(), setup(), append(1, b"x"), read(), setup(), append(5, b"z"), info())
    assert found == [
        said.SegmentCreated(REQUEST, "a"),
        SET_UP,
        appended(1, NO_LEVEL, 9),
        said.SegmentRead("a", 0, True, False, events(b"x"), REQUEST),
        said.AppendSetup(REQUEST, "a", W1, 1),
        appended(5, 1, 18),
        said.SegmentInfo(REQUEST, "a", True, False, False, talk.store.fold.segments["a"].modified, 18, 0),
    ]
    assert not talk.outcome.partial


# What ends a conversation


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (append(1, b"x", writer=W2), "not set up"),
        (append_bytes(1, b""), "without data"),
        (setup(""), "a segment's name of 0 bytes"),
        (create("é" * 513), "1026 bytes"),
        (read("x" * 1025), "1025 bytes"),
    ],
)
def test_what_ends_the_conversation(data: bytes, words: str) -> None:
    data = HELLO + create() + setup() + data
    whole = both_ways(data)
    assert words in str(whole.error)


def test_names_and_writers_up_to_their_limits() -> None:
    name = "é" * 512
    data = HELLO + create(name) + b"".join(setup(name, bytes([number]) * 16) for number in range(3))
    assert drive([data], connection_writers=3).error is None
    assert "more than 3 writers" in str(drive([data + setup(name, b"w" * 16)], connection_writers=3).error)


# All else


WHATEVER = REQUEST.to_bytes(8, "big") + b"whatever"


@pytest.mark.parametrize(
    ("kind", "body", "number"),
    [
        (58, WHATEVER, REQUEST),
        (5, W1 + b"whatever" + WHATEVER[:8], REQUEST),
        (34, WHATEVER, REQUEST),
        (28, WHATEVER, REQUEST),
        (38, WHATEVER, REQUEST),
        (1000, b"abc", 0),
    ],
)
def test_what_is_not_served_is_said_so(kind: int, body: bytes, number: int) -> None:
    outcome = drive([HELLO + raw(kind, body) + KEEP_ALIVE])
    assert outcome.said()[1:] == [said.OperationUnsupported(number, f"type {kind}"), said.KeepAlive()]
    assert outcome.error is None


def test_hello_belongs_to_the_beginning() -> None:
    """Later it is answered again in today's dialect, and nothing in the original one."""
    assert drive([HELLO * 2]).said() == [said.Hello(17, 5)] * 2
    outcome = drive([KEEP_ALIVE + HELLO])
    assert outcome.said() == [original.KeepAlive(b"")]
    assert "type -127" in str(outcome.error)


@pytest.mark.parametrize("size", [1, 3])
def test_an_end_before_the_dialect_is_known(size: int) -> None:
    driven = Driven()
    driven.hear(HELLO[:size])
    assert driven.session.status().partial_bytes == size
    assert "inside its first message" in str(drive([HELLO[:size]]).error)


@pytest.mark.parametrize(
    ("data", "count", "least"),
    [
        (original.MESSAGES.encode(original.KeepAlive(bytes(1 << 16))), 100, (100 << 16) - REPLIES),
        (raw(41, bytes(8)), REPLIES // WAITING - 1, 0),
        (raw(41, bytes(8)), 3 * REPLIES // WAITING, 2 * REPLIES - WAITING),
    ],
)
def test_what_is_to_be_said_counts_until_it_leaves(data: bytes, count: int, least: int) -> None:
    """Also of a client that reads all of it: a reply is longer than what it answers, where the segment's name is long."""
    session = SegmentSession(PEER, LIMITS, SECTION)
    session.receive((HELLO if count != 100 else b"") + data * count, NOW_MS)
    while session.status().busy:
        session.receive(b"", NOW_MS)
    waiting = session.status().waiting_bytes
    assert waiting > least if least else waiting == 0
    while session.outgoing():
        assert session.status().waiting_bytes <= waiting
    assert session.status().waiting_bytes == 0
