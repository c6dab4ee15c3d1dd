"""The original dialect's decoder: every way in which a block may come, and what ends the conversation."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
from headrace_common.session.parser import MESSAGE_WORK, WORK
from headrace_segment.wire import codes
from headrace_segment.wire.codes import HEADER, MAX_BODY, Kind
from headrace_segment.wire.original import KeepAlive, OriginalDecoder, SetupAppend
from headrace_segment.wire.parser import Block
from headrace_segment.wire.text import read_text, write_text

from tests.segment.decoding import FRAME_BYTES, every_way_original
from tests.segment.recorded import W1, W2
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


def good(data: bytes) -> list[Any]:
    found, error, done = every_way_original(data)
    assert error is None
    assert done
    return found


def fault(data: bytes, frame_bytes: int = FRAME_BYTES) -> str:
    found, error, _ = every_way_original(data, frame_bytes)
    assert error is not None
    assert not any(isinstance(each, Block) for each in found)
    return str(error[0])


TWO = events(b"hello", b"")


@pytest.mark.parametrize(
    "data",
    [
        block(0, TWO),
        block(0, TWO, capacity=900),
        block_inside(0, TWO),
        block(0, TWO + keep_alive(b"filler") + raw(Kind.PADDING, bytes(9)), length=len(TWO)),
        block(0, keep_alive() + TWO, length=len(TWO)),
        block(0, in_parts(event(b"hello"), [3, 1, 0]) + event(b""), length=len(TWO)),
        block(0, part(0, event(b"hello")) + keep_alive() + part(2, b"") + event(b""), length=len(TWO)),
        *[over_the_end(0, event(b"hello"), event(b""), at) for at in range(9)],
        over_the_end(0, event(b"hello"), event(b""), 3).replace(part(2, b"\0" * 5), keep_alive() + part(2, b"\0" * 5)),
        in_parts(begin(0, 21), [8]) + TWO + end(21, 21),
        begin(0, 21) + TWO + end(21, 21),
    ],
)
def test_a_block_in_every_shape(data: bytes) -> None:
    assert good(data) == [Block(W1, 0, 21, TWO, 2)]


def test_any_message_may_come_in_parts() -> None:
    for message in (setup("segment"), read(), keep_alive(b"12345")):
        (plain,) = good(message)
        assert good(in_parts(message, [1, 6, 0, 4])) == [plain]
        assert good(in_parts(message, [])) == [plain]
    assert good(in_parts(block_inside(0, TWO)[: -len(end(0, 0))], [40]) + end(21, 21)) == [Block(W1, 0, 21, TWO, 2)]


def test_an_empty_block() -> None:
    assert good(block(7, b"")) == [Block(W1, 7, 7, b"", 0)]


def test_a_keep_alive_between_the_parts_of_a_message_is_one() -> None:
    assert good(part(0, setup()[:9]) + keep_alive(b"x") + part(2, setup()[9:])) == [
        KeepAlive(b"x"),
        SetupAppend(W1, "a"),
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
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
        (raw(Kind.SETUP_APPEND, W1 + b"\0\3\xed\xa0\xbd"), "surrogate"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\4\xf0\x9f\x98\x80"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\1\xc3"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\2\xc1\xa1"), "modified UTF-8"),
        (raw(Kind.SETUP_APPEND, W1 + b"\0\3\xe0\x81\xa1"), "modified UTF-8"),
        (HEADER.pack(1, 1 << 24), "upper byte"),
        (HEADER.pack(1, (1 << 24) - 1), "a message of 16777215 bytes"),
    ],
)
def test_what_ends_the_conversation(data: bytes, words: str) -> None:
    assert words in fault(data)


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
    "data",
    [
        HEADER.pack(Kind.KEEP_ALIVE, 101),
        block(0, event(bytes(40)) * 3),
        block(0, event(bytes(93))),
        part(0, keep_alive(bytes(93))[:50]),
        over_the_end(0, event(bytes(40)), event(bytes(60)), 9),
    ],
)
def test_the_limit_of_a_frame(data: bytes) -> None:
    _, error, _ = every_way_original(data, 100)
    assert error is not None
    assert error[1] == "LIMITS__FRAME_BYTES"


def test_an_announced_length_takes_no_memory() -> None:
    decoder = OriginalDecoder(1 << 24)
    assert list(decoder.receive(HEADER.pack(Kind.KEEP_ALIVE, (1 << 24) - 1) + bytes(50))) == []
    assert decoder.partial_bytes() < 100


def test_many_messages_are_looked_at_in_turns() -> None:
    decoder = OriginalDecoder(1 << 20)
    found = list(decoder.receive(keep_alive() * 500))
    assert decoder.busy
    assert len(found) == WORK // MESSAGE_WORK
    while decoder.busy:
        found += decoder.receive(b"")
    assert len(found) == 500


def test_many_events_of_a_block_are_looked_at_in_turns() -> None:
    decoder, turns = OriginalDecoder(1 << 20), 0
    found = list(decoder.receive(block(0, event(b"") * 9000)))
    while decoder.busy:
        found += decoder.receive(b"")
        turns += 1
    assert turns >= 3
    assert found[-1] == Block(W1, 0, 72_000, event(b"") * 9000, 9000)


def test_a_length_has_three_bytes() -> None:
    """The upper byte of a length is 0: readers refuse another."""
    assert codes.message(Kind.KEEP_ALIVE, bytes(MAX_BODY))[4:8] == b"\x00\xff\xff\xff"
    with pytest.raises(ValueError, match="a body of 16777216 bytes"):
        codes.message(Kind.KEEP_ALIVE, bytes(MAX_BODY + 1))
