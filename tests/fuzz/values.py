"""Values that hold anything: msgpack, JSON, and what compresses them."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from typing import Final

import lz4.block
import snappy
from headrace_common.session.inflate import zstd

from tests.fuzz.shape import Shape

TEXTS: Final = (b"a", b"\\", b'"', b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"[{", b"/~", b"\x00", b"\n", b"null")
NUMBERS: Final = (0, 1, 2, 15, 16, 255, 256, 65_535, 2**24, 2**31, 2**32 - 1)

# msgpack


def _header(s: Shape, kind: str, count: int) -> bytes:
    """The header of an array, a map, a str or a bin; sometimes wider than necessary, seldom one that announces too much."""
    if s.perhaps(0.02):
        count = s.choice(NUMBERS)
    fixed, base, codes = {
        "array": (16, 0x90, (None, 0xDC, 0xDD)),
        "map": (16, 0x80, (None, 0xDE, 0xDF)),
        "str": (32, 0xA0, (0xD9, 0xDA, 0xDB)),
        "bin": (0, 0, (0xC4, 0xC5, 0xC6)),
    }[kind]
    wider = s.perhaps(0.1)
    if count < fixed and not wider:
        return bytes((base | count,))
    for code, width in zip(codes, (1, 2, 4), strict=True):
        if code is not None and count < 256**width and not (wider and width < 4):
            return bytes((code,)) + count.to_bytes(width, "big")
    return bytes((codes[2],)) + (count & 0xFFFFFFFF).to_bytes(4, "big")


def with_length(s: Shape, kind: str, data: bytes) -> bytes:
    return _header(s, kind, len(data)) + data


def packed_text(s: Shape, *texts: bytes) -> bytes:
    return with_length(s, "str", s.text(*(texts or TEXTS)))


def event_time(s: Shape) -> bytes:
    return b"\xd7\x00" + struct.pack(">II", s.choice((1_700_000_000, 0, 2**32 - 1)), s.choice((0, 5, 10**9)))


def _ext(s: Shape) -> bytes:
    code = s.choice((0, 0, 1, 255, 128))
    if s.perhaps(0.5):
        width = s.choice((1, 2, 4, 8, 16))
        return bytes((0xD4 + (1, 2, 4, 8, 16).index(width), code)) + s.randbytes(width)
    data = s.text(b"\x00", b"x")
    return b"\xc9" + len(data).to_bytes(4, "big") + bytes((code,)) + data


def _packed_scalar(s: Shape) -> bytes:
    kind = s.randrange(9)
    if kind == 0:
        return event_time(s)
    if kind == 1:
        return _ext(s)
    if kind == 2:
        return b"\xcf" + s.choice((0, 1, 2**63, 2**64 - 1)).to_bytes(8, "big")
    if kind == 3:
        return b"\xd3" + s.choice((-1, -(2**63), -33)).to_bytes(8, "big", signed=True)
    if kind == 4:
        return b"\xcb" + struct.pack(">d", s.choice((0.0, 1.5, float("nan"), float("inf"), 1e300, 1.7e9 + 1e-7)))
    if kind == 5:
        return b"\xca" + struct.pack(">f", 1.5)
    if kind == 6:
        return with_length(s, "bin", s.text(*TEXTS))
    if kind == 7:
        return packed_text(s)
    return s.choice((b"\xc0", b"\xc2", b"\xc3", b"\x00", b"\x7f", b"\xe0", b"\xcc\x05"))


def _packed_keys(s: Shape, count: int) -> Sequence[bytes]:
    """Keys of a map: different ones, one again and again, or anything."""
    kind = s.randrange(6)
    if kind < 2:
        return [with_length(s, "str", b"k%d" % index) for index in range(count)]
    if kind == 2:
        return [b"\xa1k"] * count
    if kind == 3:
        return [b"\xce" + index.to_bytes(4, "big") for index in range(count)]
    if kind == 4:
        return [b"\xc4\x02" + index.to_bytes(4, "big")[2:] for index in range(count)]
    made = [packed(s, 3) for _ in range(3)]
    return [made[index % 3] for index in range(count)]


def packed_map(s: Shape, level: int = 0) -> bytes:
    values = s.many(lambda index: packed(s, level + 1))
    keys = _packed_keys(s, len(values))
    return _header(s, "map", len(values)) + b"".join(map(bytes.__add__, keys, values))


def packed(s: Shape, level: int = 0) -> bytes:
    """Any object, mostly a sound one."""
    kind = s.randrange(10)
    if level > 3 or kind < 5:
        return _packed_scalar(s)
    if kind < 7:
        return packed_map(s, level)
    if kind < 9:
        items = s.many(lambda index: packed(s, level + 1))
        return _header(s, "array", len(items)) + b"".join(items)
    return s.deep(_packed_scalar(s), (b"\x91", b""), (b"\x81\xa1k", b""), (b"\x81", b"\x01"), (b"\x92\x01", b""))


# JSON

_JSON_TEXTS: Final = (b"a", b"\\\\", b'\\"', b"\xc3\xa9", b"\xff", b"\\ud800", b"\\u0041", b"[{", b"~/", b"\x01", b"]")
_SCALARS: Final = (
    b"0", b"-1", b"1.5", b"1e999", b"-0.0", b"null", b"true", b"false", b"9223372036854775808", b"1E-7", b"NaN", b"",
    b"1700000000", b"1700000000.123456789", b'"2026-11-21T09:59:34.076Z"', b'"2026-11-21 09:59:34+0100"',
)  # fmt: skip


def json_text(s: Shape) -> bytes:
    return b'"' + s.text(*_JSON_TEXTS) + b'"'


def json_value(s: Shape, level: int = 0) -> bytes:
    """Any value, mostly a sound one."""
    kind = s.randrange(12)
    if level > 3 or kind < 3:
        return s.choice(_SCALARS)
    if kind < 6:
        return json_text(s)
    if kind < 8:
        return json_object(s, (), level)
    if kind < 10:
        return b"[" + b",".join(s.many(lambda index: json_value(s, level + 1))) + b"]"
    if kind == 10:
        return s.choice((b"", b"-", b"0.")) + s.text(b"9", b"0", b"1") + s.choice((b"1", b"e5"))
    return s.deep(b"1", (b"[", b"]"), (b'{"a":', b"}"), (b"[", b""), (b"[1,", b"]"), (b'[{"x":', b"}]"))


def json_object(s: Shape, names: Sequence[bytes] = (), level: int = 0) -> bytes:
    """An object; some of its keys are `names`."""
    same = s.perhaps(0.2)
    pairs = s.many(lambda index: json_value(s, level + 1))
    keys = [b"k" if same else b"k%d" % index for index in range(len(pairs))]
    fields = [b'"%b":%b' % pair for pair in zip(keys, pairs, strict=True)]
    fields += [b'"%b":%b' % (name, json_value(s, level + 1)) for name in names if s.perhaps(0.5)]
    return b"{" + s.choice((b",", b", ", b",\n")).join(fields) + b"}"


# Compressed


def _cut(s: Shape, data: bytes) -> bytes:
    """Mostly all of it."""
    return data[: s.randrange(len(data) + 1)] if s.perhaps(0.05) else data + (b"more" if s.perhaps(0.05) else b"")


def zipped(s: Shape, data: bytes) -> bytes:
    """gzip: one member or several, empty ones between, padding behind."""
    at = s.randrange(len(data) + 1)
    members = [gzip.compress(part, s.choice((0, 1, 9)), mtime=0) for part in (data[:at], data[at:])]
    empty = s.many(lambda index: gzip.compress(b"", mtime=0)) if s.perhaps(0.3) else []
    return _cut(s, b"".join((members[0], *empty, members[1])) + (s.text(b"\x00") if s.perhaps(0.2) else b""))


def zstandard(s: Shape, data: bytes) -> bytes:
    """One frame or several."""
    frames = [bytes(zstd.compress(part)) for part in ((data,) if s.perhaps(0.7) else (data, b"", data))]
    return _cut(s, b"".join(frames))


def deflated(s: Shape, data: bytes) -> bytes:
    """One zlib stream, or two in a row, flushed often or not at all."""
    stream = zlib.compressobj(s.choice((0, 1, 3, 9)))
    parts = [data] if s.perhaps(0.6) else [data[at : at + 7] for at in range(0, len(data), 7)]
    out = b"".join(stream.compress(part) + stream.flush(zlib.Z_FULL_FLUSH) for part in parts) + stream.flush()
    return _cut(s, out + (out if s.perhaps(0.05) else b""))


def logjam_body(s: Shape, method: int, data: bytes) -> bytes:
    """As a producer compresses it; what it announces is not always so."""
    if method == 1:
        return zipped(s, data) if s.perhaps(0.3) else deflated(s, data)
    if method == 2:
        return _cut(s, bytes(snappy.compress(data)))
    if method == 3:
        size = s.choice(NUMBERS) if s.perhaps(0.1) else len(data)
        return size.to_bytes(4, "big") + _cut(s, lz4.block.compress(data, store_size=False))
    return data
