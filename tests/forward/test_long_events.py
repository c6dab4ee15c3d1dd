"""What is made of an event in steps is the same as in one call, and takes memory that follows its bytes."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from headrace_common.record.transcoding import TooDeepError, TooLongError, Transcoder
from headrace_forward.entries.values import ext_json

from tests.forward.converter import Converter, unpack
from tests.forward.driving import NOW_MS, pack, parts_of, session
from tests.long_events import MSGPACK

MIB = 1 << 20
SHAPES = {name: shape for name, shape in MSGPACK.items() if name not in ("plain text", "one wide letter")}


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
