"""What Java's encoders wrote, read and written again; and the recorded conversations of the original dialect."""

from __future__ import annotations

import random
from typing import Any

import pytest
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER
from headrace_segment.wire.original import AT_TAIL, OriginalDecoder
from headrace_segment.wire.parser import Block
from headrace_segment.wire.today import TodayDecoder, Unsupported

from tests.driving import at_random, one_by_one
from tests.segment.decoding import Kind, every_way
from tests.segment.instant import drive
from tests.segment.recorded import CONVERSATIONS, ORIGINAL, TODAY, W1, W2

FRAME_BYTES = 1 << 20
ODD_NAME = "a\0é\U0001f600"
SEGMENT = "scope/stream/0.#epoch.0"
REQUEST = (1 << 32) + 2


def cut(data: bytes) -> list[tuple[int, bytes]]:
    """Messages of a type and a body."""
    found = []
    while data:
        kind, length = HEADER.unpack_from(data)
        assert len(data) >= 8 + length
        found.append((kind, data[8 : 8 + length]))
        data = data[8 + length :]
    return found


def decoded(kind: Kind, data: bytes) -> list[Any]:
    """Whole and split it is the same."""
    found, error, done = every_way(kind, data, FRAME_BYTES)
    assert (error, done) == (None, True)
    return found


# The original dialect

ORIGINAL_MESSAGES: dict[str, list[Any]] = {
    "setup_append": [original.SetupAppend(W1, "app/0")],
    "setup_append_mutf8": [original.SetupAppend(W1, ODD_NAME)],
    "append_setup": [original.AppendSetup("app/0", W1, 0)],
    "data_appended": [original.DataAppended(W1, 27)],
    "read_segment": [original.ReadSegment("app/0", 13, 65536)],
    "segment_read_flags": [
        original.SegmentRead("app/0", 0, flags, b"\0\0\0\0\0\0\0\5hello") for flags in (AT_TAIL, AT_TAIL | 0x40, 0)
    ],
    "keep_alive": [original.KeepAlive(b""), original.KeepAlive(b"\1\2\3")],
}


def test_every_vector_of_the_original_is_tested() -> None:
    assert ORIGINAL.keys() == ORIGINAL_MESSAGES.keys() | CONVERSATIONS.keys()
    assert len(CONVERSATIONS) == 9


@pytest.mark.parametrize("name", ORIGINAL_MESSAGES)
def test_original_messages(name: str) -> None:
    data, meant = ORIGINAL[name]["data"], ORIGINAL_MESSAGES[name]
    assert [original.MESSAGES.decode(*message) for message in cut(data)] == meant
    assert b"".join(map(original.MESSAGES.encode, meant)) == data


@pytest.mark.parametrize("name", ["setup_append", "setup_append_mutf8", "read_segment", "keep_alive"])
def test_original_requests(name: str) -> None:
    assert decoded(OriginalDecoder, ORIGINAL[name]["data"]) == ORIGINAL_MESSAGES[name]


HELLO, WORLD = b"\0\0\0\0\0\0\0\5hello", b"\0\0\0\0\0\0\0\6world!"
PARTIAL = b"\0\0\0\0\0\0\0\rpartial-event"


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("conv01_block", [(W1, 0, HELLO + WORLD)]),
        ("conv02_block_inside", [(W1, 0, HELLO + WORLD)]),
        ("conv03_partial_over_end", [(W1, 0, HELLO + PARTIAL)]),
        ("conv04_two_appends", [(W1, 0, HELLO), (W2, 0, WORLD), (W1, 13, WORLD)]),
        ("conv05_resend", [(W1, 0, HELLO + WORLD)] * 2),
        ("conv06_short_block", [(W1, 0, HELLO)]),
    ],
)
def test_original_blocks(name: str, blocks: list[tuple[bytes, int, bytes]]) -> None:
    found = decoded(OriginalDecoder, ORIGINAL[name]["data"])
    assert [each for each in found if isinstance(each, Block)] == [
        Block(writer, before, before + len(data), data, 1 + (len(data) > 14)) for writer, before, data in blocks
    ]


# Today's dialect

NOT_SPOKEN = {
    *("auth_token_check_failed", "conditional_check_failed", "error_message", "segment_deleted", "wrong_host"),
    *("segment_sealed", "segment_truncated", "segment_is_sealed", "invalid_event_number"),
}
"""We never send them, and a client does not."""

TODAY_REPLIES: dict[str, Any] = {
    "append_setup": today.AppendSetup(REQUEST, SEGMENT, W1, 41),
    "append_setup_new": today.AppendSetup(REQUEST, SEGMENT, W1, -(1 << 63)),
    "data_appended": today.DataAppended(W1, 42, 41, REQUEST, 4096),
    "segment_read": today.SegmentRead(SEGMENT, 1024, True, False, HELLO, REQUEST),
    "segment_read_end": today.SegmentRead(SEGMENT, 1037, False, True, b"", REQUEST),
    "stream_segment_info": today.SegmentInfo(REQUEST, SEGMENT, True, False, False, 1_700_000_000_000, 4096, 0),
    "segment_created": today.SegmentCreated(REQUEST, SEGMENT),
    "segment_already_exists": today.SegmentAlreadyExists(REQUEST, SEGMENT),
    "no_such_segment": today.NoSuchSegment(REQUEST, SEGMENT),
    "segment_is_truncated": today.SegmentIsTruncated(REQUEST, SEGMENT, 13, "", 0),
    "operation_unsupported": today.OperationUnsupported(REQUEST, "mergeSegments"),
}
LETTERS = b"".join(b"\0\0\0\0\0\0\0\x18" + each * 24 for each in (b"a", b"b", b"c"))
SETUP = today.SetupAppend(REQUEST, W1, SEGMENT)
TODAY_REQUESTS: dict[str, list[Any]] = {
    "hello": [today.Hello(16, 5)],
    "keep_alive": [today.KeepAlive()],
    "setup_append": [SETUP],
    "setup_append_mutf8": [today.SetupAppend(REQUEST, W1, ODD_NAME, "tok")],
    "append_single": [SETUP, Block(W1, None, 1, HELLO, 1, REQUEST)],
    "append_padded": [SETUP, Block(W1, None, 1, HELLO, 1, REQUEST), today.KeepAlive()],
    "append_partial": [SETUP, Block(W1, None, 3, LETTERS, 3, REQUEST)],
    "append_two_writers": [
        SETUP,
        today.SetupAppend((2 << 32) + 2, W2, "scope/stream/1.#epoch.0"),
        Block(W1, None, 2, b"\0\0\0\0\0\0\0\3one\0\0\0\0\0\0\0\5three", 2, REQUEST),
        Block(W2, None, 7, b"\0\0\0\0\0\0\0\3two", 1, (2 << 32) + 2),
        today.KeepAlive(),
    ],
    "conditional_append": [SETUP, Unsupported(REQUEST, 5)],
    "read_segment": [today.ReadSegment(SEGMENT, 1024, 131_072, "", REQUEST)],
    "get_stream_segment_info": [today.GetSegmentInfo(REQUEST, SEGMENT)],
    "create_segment": [today.CreateSegment(REQUEST, SEGMENT, 0, 0)],
    "seal_segment": [Unsupported(REQUEST, 28)],
    "truncate_segment": [Unsupported(REQUEST, 38)],
    "delete_segment": [Unsupported(REQUEST, 30)],
}


def test_every_vector_of_today_is_tested() -> None:
    assert TODAY.keys() == TODAY_REPLIES.keys() | TODAY_REQUESTS.keys() | NOT_SPOKEN


@pytest.mark.parametrize("name", TODAY_REPLIES)
def test_todays_replies(name: str) -> None:
    data, meant = TODAY[name]["data"], TODAY_REPLIES[name]
    assert [today.MESSAGES.decode(*message) for message in cut(data)] == [meant]
    assert today.MESSAGES.encode(meant) == data


@pytest.mark.parametrize("name", TODAY_REQUESTS)
def test_todays_requests(name: str) -> None:
    data, meant = TODAY[name]["data"], TODAY_REQUESTS[name]
    assert decoded(TodayDecoder, data) == meant
    if not any(isinstance(each, Block | Unsupported) for each in meant):
        assert b"".join(map(today.MESSAGES.encode, meant)) == data


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_recorded_replies(name: str) -> None:
    data, replies = CONVERSATIONS[name]["data"], CONVERSATIONS[name]["replies"]
    whole = drive([data])
    assert whole.replies.hex() == replies.hex()
    assert (whole.error is not None) == (name in ("conv08_unknown_type", "conv09_end_mismatch"))
    assert drive(one_by_one(data)).comparable() == whole.comparable()
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed))).comparable() == whole.comparable()


def test_what_they_publish() -> None:
    outcome = drive([CONVERSATIONS["conv05_resend"]["data"]])
    assert [(event.subject, event.value) for event in outcome.events] == [("c5", b"hello"), ("c5", b"world!")]
    (first, second) = outcome.events
    assert first.headers["content-type"] == b"application/octet-stream"
    assert first.source == "/segment/192.0.2.7"
    assert first.attributes == {"writer": "00112233445566778899aabbccddeeff", "level": 13, "time": "received"}
    assert second.attributes["level"] == 27
