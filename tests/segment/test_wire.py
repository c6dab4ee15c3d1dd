"""The decoders of both dialects: how a block may come, what ends the conversation, and what Java's encoders wrote."""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_segment.wire import original, today
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import read_text, write_text
from headrace_segment.wire.original import AT_TAIL, KeepAlive, OriginalDecoder, SetupAppend
from headrace_segment.wire.parser import Block
from headrace_segment.wire.today import TodayDecoder, Unsupported

from tests.driving import at_random, one_by_one
from tests.segment.instant import drive, read_replies
from tests.segment.recorded import CONVERSATIONS, ORIGINAL, TODAY, W1, W2
from tests.segment.speaking import (
    begin,
    block,
    block_inside,
    end,
    event,
    events,
    in_parts,
    keep_alive,
    over_the_end,
    part,
    raw,
    read,
    setup,
)
from tests.segment.speaking_today import append_block, say

Decoder = type[OriginalDecoder] | type[TodayDecoder]
Fault = tuple[str, str | None, int | None] | None


def fed(kind: Decoder, pieces: Any, frame_bytes: int) -> tuple[list[Any], Fault]:
    """What came out, and the fault. Without one nothing is left."""
    decoder, found = kind(frame_bytes), list[Any]()
    try:
        for piece in pieces:
            found += decoder.receive(piece)
            while decoder.busy:
                found += decoder.receive(b"")
            assert decoder.partial_bytes() <= 3 * frame_bytes + len(piece)
    except ProtocolError as fault:
        with pytest.raises(ProtocolError):
            list(decoder.receive(b""))
        assert decoder.partial_bytes() == 0
        return found, (str(fault), fault.limit, fault.offset)
    return found, None


def every_way(kind: Decoder, data: bytes, frame_bytes: int = 4096) -> tuple[list[Any], Fault]:
    """The same, however the bytes are split."""
    whole = fed(kind, [data], frame_bytes)
    assert fed(kind, one_by_one(data), frame_bytes) == whole
    assert fed(kind, at_random(data, random.Random(1)), frame_bytes) == whole
    return whole


def good(data: bytes) -> list[Any]:
    found, fault = every_way(OriginalDecoder, data)
    assert fault is None
    return found


def end_today(whole: int, data: bytes = b"", count: int = 1, writer: bytes = W1) -> bytes:
    return say(today.AppendBlockEnd(writer, whole, data, count, 7, 3))


HELLO, WORLD = event(b"hello"), event(b"world!")
TWO = events(b"hello", b"")


@pytest.mark.parametrize(
    "data",
    [
        block(0, TWO),
        block(0, TWO, capacity=900),
        block_inside(TWO),
        block(0, TWO + keep_alive(b"filler") + raw(Kind.PADDING, bytes(9)), length=len(TWO)),
        block(0, keep_alive() + TWO, length=len(TWO)),
        block(0, in_parts(event(b"hello"), [3, 1, 0]) + event(b""), length=len(TWO)),
        block(0, part(0, event(b"hello")) + keep_alive() + part(2, b"") + event(b""), length=len(TWO)),
        *[over_the_end(event(b"hello"), event(b""), at) for at in range(9)],
        over_the_end(event(b"hello"), event(b""), 3).replace(part(2, b"\0" * 5), keep_alive() + part(2, b"\0" * 5)),
        in_parts(begin(0, 21), [8]) + TWO + end(21, 21),
        begin(0, 21) + TWO + end(21, 21),
    ],
)
def test_a_block_in_every_shape_of_the_original(data: bytes) -> None:
    assert good(data) == [Block(W1, 0, 21, TWO, 2)]


def test_any_message_may_come_in_parts() -> None:
    for message in (setup("segment"), read(), keep_alive(b"12345")):
        (plain,) = good(message)
        assert good(in_parts(message, [1, 6, 0, 4])) == [plain]
        assert good(in_parts(message, [])) == [plain]
    assert good(in_parts(block_inside(TWO)[: -len(end(0, 0))], [40]) + end(21, 21)) == [Block(W1, 0, 21, TWO, 2)]


def test_a_keep_alive_may_stand_between_a_messages_parts() -> None:
    assert good(part(0, setup()[:9]) + keep_alive(b"x") + part(2, setup()[9:])) == [
        KeepAlive(b"x"),
        SetupAppend(W1, "a"),
    ]
    decoder = OriginalDecoder(4096)
    assert list(decoder.receive(part(0, setup()[:9]))) == []
    assert decoder.partial_bytes() >= 9, "the budget counts it"


@pytest.mark.parametrize(
    "data",
    [
        append_block(W1, HELLO) + end_today(13),
        end_today(0, HELLO),
        end_today(len(HELLO), HELLO),  # Pravega's Rust client, and Python's, which is made of it
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, b"")) + end_today(0, HELLO),
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, HELLO)) + end_today(0),
        append_block(W1, raw(Kind.PARTIAL_MESSAGE, HELLO[:9])) + end_today(0, HELLO[9:]),
        append_block(W1, HELLO + raw(Kind.PADDING, bytes(40))) + end_today(13),
        append_block(W1, b"") + end_today(0, HELLO),
        raw(Kind.PADDING, bytes(3)) + append_block(W1, HELLO) + end_today(13),
    ],
)
def test_a_block_in_every_shape_of_today(data: bytes) -> None:
    assert every_way(TodayDecoder, data) == ([Block(W1, None, 7, HELLO, 1, 3)], None)


WRONG: dict[Decoder, list[tuple[bytes, str]]] = {
    OriginalDecoder: [
        (raw(99, b""), "type 99"),
        (event(b"x"), "type 0 outside"),
        (end(0, 0), "type 4 outside"),
        (raw(Kind.DATA_APPENDED, bytes(24)), "type 7"),
        (begin(0, 99) + setup(), "type 1 in a block"),
        (begin(0, 99) + begin(0, 99), "type 3 in a block"),
        (begin(-1, 99), "negative"),
        (read(offset=-1), "negative"),
        (begin(0, 12) + event(b"hello"), "more than the 12 bytes"),
        (begin(0, 20) + event(b"hello") + keep_alive(), "more than the 20 bytes"),
        (begin(0, 99) + TWO + end(21, 20), "is expected"),
        (begin(0, 99) + TWO + end(22, 22), "a block of 21 bytes that ends as one of 22"),
        (begin(5, 99) + TWO + end(4, -1), "is expected"),
        (begin(0, 99) + TWO + end(21, 21, W2), "another writer"),
        (raw(Kind.BEGIN_APPEND_BLOCK, bytes(27)), "27 bytes"),
        (raw(Kind.BEGIN_APPEND_BLOCK, bytes(29)), "28 + 1 bytes for 0"),
        (raw(Kind.BEGIN_APPEND_BLOCK, begin(0, 21)[8:] + TWO[:10]) + TWO[10:] + end(21, 21), "28 + 10 bytes for 21"),
        (raw(Kind.BEGIN_APPEND_BLOCK, begin(0, 21)[8:] + TWO[:13] + end(13, 13)[:8]) + end(13, 13)[8:], "inside of"),
        (part(1, b""), "out of its order"),
        (part(0, b"") + part(0, b""), "out of its order"),
        (part(3, b""), "kind 3"),
        (raw(Kind.PARTIAL_MESSAGE, b""), "ends inside a field"),
        (part(0, setup()) + part(2, b"x"), "parts of"),
        (part(0, setup()[:-1]) + part(2, b""), "parts of"),
        (part(0, setup()[:3]) + part(2, b""), "inside its header"),
        (part(0, part(0, b"")) + part(2, b""), "PartialMessage in parts"),
        (part(0, setup()[:9]) + setup(), "within a message in parts"),
        (part(0, HEADER.pack(1, 1 << 24)), "16777216 bytes in parts"),
        (begin(0, 99) + part(0, setup()[:9]), "type 1 in parts"),
        (begin(0, 99) + part(0, event(b"hello")[:9]) + event(b""), "within a message in parts"),
        (begin(0, 99) + part(0, event(b"hello")[:9]) + end(13, 13) + event(b""), "type 0 after a block"),
        (begin(0, 99) + part(0, event(b"hello")[:9]) + end(14, 14) + part(2, b"ello"), "ends as one of 14"),
        (raw(Kind.SETUP_APPEND, W1), "inside a field"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\2a"), "longer than its message"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\1ab"), "1 bytes too many"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\3\xed\xa0\xbd"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\4\xf0\x9f\x98\x80"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\1\xc3"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\2\xc1\xa1"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\3\xe0\x81\xa1"), "modified UTF-8"),
        (HEADER.pack(1, 1 << 24), "upper byte"),
        (HEADER.pack(1, (1 << 24) - 1), "a message of 16777215 bytes"),
    ],
    TodayDecoder: [
        (append_block(W1, HELLO) + say(today.KeepAlive()), "type 100 in a block"),
        (append_block(W1, HELLO) + append_block(W1, HELLO), "type 3 in a block"),
        (append_block(W1, HELLO) + end_today(13, writer=W2), "another writer"),
        (append_block(W1, HELLO) + end_today(14), "14 of 13"),
        (append_block(W1, HELLO) + end_today(-1), "-1 of 13"),
        (append_block(W1, HELLO) + end_today(13, count=-1), "negative number of events"),
        (append_block(W1, HELLO + b"abc") + end_today(13), "inside a header"),
        (append_block(W1, HELLO + HELLO) + end_today(13), "at the end of a block"),
        (append_block(W1, HELLO + raw(Kind.PADDING, b"") + b"x") + end_today(13), "at the end of a block"),
        (raw(Kind.BEGIN_APPEND_BLOCK, W1[:15]), "without a writer"),
        (HELLO, "type 0 from a client"),
        (raw(Kind.PARTIAL_MESSAGE, b""), "type -2 from a client"),
        (say(today.ReadSegment("a", -1, 5)), "negative"),
        (raw(Kind.HELLO, bytes(7)), "inside a field"),
        (HEADER.pack(1, 1 << 24), "upper byte"),
    ],
}


@pytest.mark.parametrize(
    ("decoder", "data", "words"), [(decoder, *row) for decoder, rows in WRONG.items() for row in rows]
)
def test_what_ends_the_conversation(decoder: Decoder, data: bytes, words: str) -> None:
    found, fault = every_way(decoder, data)
    assert fault is not None
    assert words in fault[0]
    assert not any(isinstance(each, Block) for each in found)


@pytest.mark.parametrize("text", ["\0", "é", "€", "a\0é😀€", "\0" * 9, "\U0010ffff\uffff"])
def test_texts_are_read_as_java_writes_them(text: str) -> None:
    assert good(raw(Kind.SETUP_APPEND, W1 + len(write_text(text)).to_bytes(2, "big") + write_text(text))) == [
        SetupAppend(W1, text)
    ]


def test_the_longest_text_is_read_in_few_steps() -> None:
    """A loop over its bytes took ten milliseconds, and a client may send hundreds of them at once."""
    data, calls = "é".encode() * 32_767, itertools.count()
    sys.setprofile(lambda *_: next(calls))
    try:
        assert read_text(data) == "é" * 32_767
    finally:
        sys.setprofile(None)
    assert next(calls) < 100


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (OriginalDecoder, HEADER.pack(Kind.KEEP_ALIVE, 101)),
        (OriginalDecoder, block(0, event(bytes(40)) * 3)),
        (OriginalDecoder, block(0, event(bytes(93)))),
        (OriginalDecoder, part(0, keep_alive(bytes(93))[:50])),
        (OriginalDecoder, over_the_end(event(bytes(40)), event(bytes(60)), 9)),
        (TodayDecoder, HEADER.pack(Kind.KEEP_ALIVE, 101)),
        (TodayDecoder, append_block(W1, event(bytes(60))) + end_today(68, bytes(50))),
    ],
)
def test_the_limit_of_a_frame(decoder: Decoder, data: bytes) -> None:
    _, fault = every_way(decoder, data, 100)
    assert fault is not None
    assert fault[1] == "LIMITS__FRAME_BYTES"


def test_the_end_of_a_message_may_shrink_or_grow() -> None:
    whole = say(today.CreateSegment(1, "a", 0, 0))
    assert every_way(TodayDecoder, raw(Kind.CREATE_SEGMENT, whole[8:-10])) == (
        [today.CreateSegment(1, "a", 0, 0)],
        None,
    )
    grown = raw(Kind.GET_SEGMENT_INFO, say(today.GetSegmentInfo(1, "a", "t"))[8:] + b"something new")
    assert every_way(TodayDecoder, grown) == ([today.GetSegmentInfo(1, "a", "t")], None)


# What was recorded

ODD_NAME = "a\0é\U0001f600"
SEGMENT = "scope/stream/0.#epoch.0"
REQUEST = (1 << 32) + 2


NOT_SPOKEN = {
    *("auth_token_check_failed", "conditional_check_failed", "error_message", "segment_deleted", "wrong_host"),
    *("segment_sealed", "segment_truncated", "segment_is_sealed", "invalid_event_number"),
}
"""We never send them, and a client does not."""

REPLIES: dict[str, dict[str, list[Any]]] = {
    "original": {
        "append_setup": [original.AppendSetup("app/0", W1, 0)],
        "data_appended": [original.DataAppended(W1, 27)],
        "segment_read_flags": [
            original.SegmentRead("app/0", 0, flags, HELLO) for flags in (AT_TAIL, AT_TAIL | 0x40, 0)
        ],
    },
    "today": {
        "append_setup": [today.AppendSetup(REQUEST, SEGMENT, W1, 41)],
        "append_setup_new": [today.AppendSetup(REQUEST, SEGMENT, W1, -(1 << 63))],
        "data_appended": [today.DataAppended(W1, 42, 41, REQUEST, 4096)],
        "segment_read": [today.SegmentRead(SEGMENT, 1024, True, False, HELLO, REQUEST)],
        "segment_read_end": [today.SegmentRead(SEGMENT, 1037, False, True, b"", REQUEST)],
        "stream_segment_info": [today.SegmentInfo(REQUEST, SEGMENT, True, False, False, 1_700_000_000_000, 4096, 0)],
        "segment_created": [today.SegmentCreated(REQUEST, SEGMENT)],
        "segment_already_exists": [today.SegmentAlreadyExists(REQUEST, SEGMENT)],
        "no_such_segment": [today.NoSuchSegment(REQUEST, SEGMENT)],
        "segment_is_truncated": [today.SegmentIsTruncated(REQUEST, SEGMENT, 13, "", 0)],
        "operation_unsupported": [today.OperationUnsupported(REQUEST, "mergeSegments")],
    },
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


REQUESTS: dict[str, dict[str, list[Any]]] = {
    "original": {
        "setup_append": [SetupAppend(W1, "app/0")],
        "setup_append_mutf8": [SetupAppend(W1, ODD_NAME)],
        "read_segment": [original.ReadSegment("app/0", 13, 65536)],
        "keep_alive": [KeepAlive(b""), KeepAlive(b"\1\2\3")],
    },
    "today": TODAY_REQUESTS,
}
DIALECTS: dict[str, tuple[dict[str, Any], Any, Decoder]] = {
    "original": (ORIGINAL, original.MESSAGES, OriginalDecoder),
    "today": (TODAY, today.MESSAGES, TodayDecoder),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_recorded_messages(dialect: str) -> None:
    recorded, messages, decoder = DIALECTS[dialect]
    requests, replies = REQUESTS[dialect], REPLIES[dialect]
    assert recorded.keys() == requests.keys() | replies.keys() | (
        NOT_SPOKEN if dialect == "today" else {*CONVERSATIONS}
    )
    for name, meant in (requests | replies).items():
        data = recorded[name]["data"]
        if name in requests:
            assert every_way(decoder, data) == (meant, None), name
        else:
            assert read_replies(data, messages) == meant, name
        if not any(isinstance(each, Block | Unsupported) for each in meant):
            assert b"".join(map(messages.encode, meant)) == data, name


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_recorded_replies(name: str) -> None:
    data, replies = CONVERSATIONS[name]["data"], CONVERSATIONS[name]["replies"]
    whole = drive([data])
    assert whole.replies.hex() == replies.hex()
    assert (whole.error is not None) == (name in ("conv08_unknown_type", "conv09_end_mismatch"))
    assert drive(one_by_one(data)).comparable() == whole.comparable()
    for seed in range(3):
        assert drive(at_random(data, random.Random(seed))).comparable() == whole.comparable()
