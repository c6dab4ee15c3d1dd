"""One event of any shape is built in steps, and in memory that follows its bytes; what comes of it is the same as in one call."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from headrace_common.record.transcoding import STEPS, TooDeepError, TooLongError, Transcoder
from headrace_common.session.interface import Pause
from headrace_forward.entries.values import ext_json

from tests.forward.converter import Converter, unpack
from tests.forward.driving import NOW_MS, pack, parts_of, session

MIB = 1 << 20


def array_of(value: bytes, size: int) -> bytes:
    count = size // len(value)
    return b"\x81\xa1a\xdd" + count.to_bytes(4, "big") + value * count


def map_of(key: Callable[[int], bytes], size: int) -> bytes:
    pairs = [key(number) + b"\xc0" for number in range(size // (len(key(0)) + 1))]
    return b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(pairs)


SHAPES: dict[str, Callable[[int], bytes]] = {
    "arrays 60 deep": lambda size: array_of(b"\x91" * 60 + b"\xc0", size),
    "maps 60 deep": lambda size: array_of(b"\x81\xa1k" * 60 + b"\xc0", size),
    "empty maps": lambda size: array_of(b"\x80", size),
    "exts": lambda size: array_of(b"\xd4\x05x", size),
    "times": lambda size: array_of(b"\xd7\0" + bytes(8), size),
    "bins": lambda size: array_of(b"\xc4\x01x", size),
    "bins that are no text": lambda size: array_of(b"\xc4\x01\xff", size),
    "texts that are not UTF-8": lambda size: array_of(b"\xa1\xff", size),
    "float32": lambda size: array_of(b"\xca\0\0\0\0", size),
    "integer keys": lambda size: map_of(lambda number: struct.pack(">BI", 0xCE, number), size),
    "one key": lambda size: map_of(lambda _: b"\xa1k", size),
    "two keys in turn": lambda size: map_of(lambda number: b"\xa1k" if number % 2 else b"\xa1l", size),
    "text keys": lambda size: map_of(lambda number: b"\xa6%06x" % number, size),
    "small maps of integer keys": lambda size: array_of(b"\x82\x01\xc0\x02\xc0", size),
}


def steps_of(record: bytes, event_bytes: int = 16 * MIB) -> int:
    """How many steps building the event of `record` takes."""
    driven = session(event_bytes=event_bytes)
    driven.receive(b"\x93\xa1t\x91\x92\x01" + record + pack({"chunk": "c"}), NOW_MS)
    while driven.busy():
        driven.receive(b"", NOW_MS)
    (frame,) = driven.frames()
    return sum(isinstance(part, Pause) for part in frame.parts())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_long_events_are_built_in_steps(shape: Callable[[int], bytes]) -> None:
    """Four times the bytes are four times the steps: none grows with the event."""
    few, many = steps_of(shape(20_000)), steps_of(shape(80_000))
    assert few >= 20_000 // 11 // STEPS
    assert 3 * few - 4 <= many <= 5 * few + 4


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_memory_follows_the_limit(shape: Callable[[int], bytes]) -> None:
    """Objects would take up to a hundred times as much. Beside the bytes as received and as written, a map of small pairs takes
    some bytes for each.
    """
    limit = MIB // 32
    record = shape(limit)
    transcoder = Transcoder(64, limit, ext_json)
    tracemalloc.start()
    try:
        for _ in transcoder.write(record):
            pass
    except TooLongError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 12 * limit


def written(raw: bytes, depth: int) -> Any:
    transcoder = Transcoder(depth, MIB, ext_json)
    writing = transcoder.write(raw)
    while True:
        try:
            next(writing)
        except StopIteration as done:
            return done.value, orjson.loads(orjson.dumps(transcoder.notes()))
        except TooDeepError:
            return "too deep"
        except ValueError as error:
            return str(error)


def converted(raw: bytes, depth: int) -> Any:
    converter = Converter(depth)
    try:
        return orjson.dumps(converter.plain(unpack(raw))), orjson.loads(orjson.dumps(converter.notes()))
    except ValueError as error:
        return "too deep" if "nested" in str(error) or "key within" in str(error) else str(error)


SCALARS = [
    *(bytes((byte,)) for byte in (0, 1, 127, 0xE0, 0xFF, 0xC0, 0xC2, 0xC3)),
    *map(
        pack,
        (
            -(2**63),
            2**64 - 1,
            300,
            -300,
            0.1,
            1e300,
            -0.0,
            "ab",
            "ü",
            'q"\n',
            "/",
            "~",
            "1",
            "null",
            "a",
            b"ab",
            b"\xff",
        ),
    ),
    *(b"\xcb" + struct.pack(">d", float(text)) for text in ("nan", "inf", "-inf")),
    *(b"\xca" + struct.pack(">f", number) for number in (0.1, 0.5)),
    *(
        b"\xa2\xff\xfe",
        b"\xa2a\xff",
        b"\xd9\x03abc",
        b"\xda\0\x01a",
        b"\xdb\0\0\0\x01a",
        b"\xc5\0\x02ab",
        b"\xc6\0\0\0\x01\xff",
    ),
    *(b"\xd4\x05x", b"\xd4\xfex", b"\xd5\x01ab", b"\xd7\0" + b"\x10" * 8, b"\xd6\xff\0\0\0\x09", b"\xc7\x03\x09abc"),
    *(
        b"\xc7\x0c\xff" + bytes(12),
        b"\xc8\0\x01\x07x",
        b"\xc9\0\0\0\x01\x07x",
        b"\xd7\xff" + bytes(7) + b"\x05",
        b"\xd4\xffx",
    ),
]


def value(chance: random.Random, depth: int) -> bytes:
    kind = chance.random()
    if depth and kind < 0.35:
        count = chance.choice((0, 1, 2, 3, 17))
        header = bytes((0x90 | count,)) if count < 16 else b"\xdc\0" + bytes((count,))
        return header + b"".join(value(chance, depth - 1) for _ in range(count))
    if depth and kind < 0.75:
        count = chance.choice((0, 1, 2, 3, 4))
        header = bytes((0x80 | count,)) if chance.random() < 0.7 else b"\xdf\0\0\0" + bytes((count,))
        return header + b"".join(key(chance, depth - 1) + value(chance, depth - 1) for _ in range(count))
    return chance.choice(SCALARS)


def key(chance: random.Random, depth: int) -> bytes:
    kind = chance.random()
    return (
        value(chance, min(depth, 2))
        if kind < 0.1
        else chance.choice(SCALARS)
        if kind < 0.5
        else pack(chance.choice("ab/"))
    )


@pytest.mark.parametrize("seed", range(20))
def test_steps_and_one_call_give_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        raw, depth = value(chance, chance.randint(1, 4)), chance.choice((64, 64, 3))
        one, other = converted(raw, depth), written(raw, depth)
        if isinstance(one, str) and isinstance(other, str):
            continue  # of two faults, either may be seen first
        assert one == other, raw


def test_what_is_not_whole_or_goes_on() -> None:
    for raw in (
        b"",
        b"\x91",
        b"\x81\xa1a",
        b"\xa5a",
        b"\xcc",
        b"\xcb\0",
        b"\xc9\xff\xff\xff\xff",
        b"\x01\x01",
        b"\xd4",
    ):
        assert written(raw, 64) == "not one whole msgpack object"


def test_both_sides_of_the_limit() -> None:
    record = b"\x81\xa1a\xda\x80\0" + b"x" * 0x8000
    for limit, reason in ((0x8000 + 100, None), (0x8000 + 1, "oversized")):
        driven = session(event_bytes=limit)
        driven.receive(b"\x93\xa1t\x91\x92\x01" + record + pack({}), NOW_MS)
        (part,) = parts_of(*driven.frames())
        assert getattr(getattr(part, "reason", None), "value", None) == reason
