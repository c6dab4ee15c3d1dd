"""Hypothesis strategies for msgpack in every encoding the format allows, and for what clients send."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

NOWHERE = st.characters(
    exclude_categories=["Cs"], exclude_characters=bytes(range(0x80, 0x100)).decode("cp1252", "replace")
)
FLOATS = ("NaN", "Infinity", "-Infinity")
TEXTS = st.text(NOWHERE, max_size=12).filter(lambda text: not text.startswith("$") and text not in FLOATS)


def _width(draw: st.DrawFn, least: int, codes: dict[int, int], length: int) -> bytes:
    """A length in one of the widths that hold it; `codes`: bytes of the length -> first byte; `least` packs into one."""
    widths = [size for size in codes if length < 1 << 8 * size]
    size = draw(st.sampled_from(widths))
    if size == 0:
        return bytes((least | length,))
    return bytes((codes[size],)) + length.to_bytes(size, "big")


@st.composite
def strs(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    data = draw(contents)
    codes = {1: 0xD9, 2: 0xDA, 4: 0xDB}
    if len(data) < 32 and draw(st.booleans()):
        return bytes((0xA0 | len(data),)) + data
    return _width(draw, 0, codes, len(data)) + data


@st.composite
def bins(draw: st.DrawFn) -> bytes:
    data = draw(st.binary(max_size=12))
    return _width(draw, 0, {1: 0xC4, 2: 0xC5, 4: 0xC6}, len(data)) + data


@st.composite
def integers(draw: st.DrawFn) -> bytes:
    value = draw(
        st.integers(-(2**63), 2**64 - 1) | st.integers(-200, 300) | st.sampled_from([-(2**63), 2**63, 2**64 - 1])
    )
    forms = [form for form in ("b", "h", "i", "q", "B", "H", "I", "Q") if _holds(form, value)]
    codes = dict(zip("BHIQbhiq", range(0xCC, 0xD4), strict=True))
    if -32 <= value < 128 and draw(st.booleans()):
        return struct.pack("b", value)
    form = draw(st.sampled_from(forms))
    return bytes((codes[form],)) + struct.pack(f">{form}", value)


def _holds(form: str, value: int) -> bool:
    try:
        struct.pack(f">{form}", value)
    except struct.error:
        return False
    return True


@st.composite
def exts(draw: st.DrawFn) -> bytes:
    """But for ext -1, which is `timestamps`, and EventTimes, which are `event_times`."""
    code = draw(st.integers(-128, 127).filter(lambda code: code not in (0, -1)))
    data = draw(st.binary(max_size=20))
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
    kind = struct.pack("b", code)
    if len(data) in fixed and draw(st.booleans()):
        return bytes((fixed[len(data)],)) + kind + data
    return _width(draw, 0, {1: 0xC7, 2: 0xC8, 4: 0xC9}, len(data)) + kind + data


@st.composite
def event_times(draw: st.DrawFn) -> bytes:
    data = struct.pack(">II", draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 999_999_999)))
    return draw(st.sampled_from([b"\xd7\0", b"\xc7\x08\0", b"\xc8\0\x08\0"])) + data


@st.composite
def timestamps(draw: st.DrawFn) -> bytes:
    """Ext -1 in the shortest of its forms."""
    if draw(st.booleans()):
        return b"\xd6\xff" + struct.pack(">I", draw(st.integers(0, 2**32 - 1)))
    nanoseconds = draw(st.integers(1, 999_999_999))
    return b"\xd7\xff" + struct.pack(">Q", nanoseconds << 34 | draw(st.integers(0, 2**34 - 1)))


valid_texts = strs(TEXTS.map(str.encode))
invalid_texts = strs(st.binary(min_size=1, max_size=8).map(lambda data: data + b"\xff"))
float64s = st.floats(width=64).map(lambda value: b"\xcb" + struct.pack(">d", value))
float32s = st.floats(width=32).map(lambda value: b"\xca" + struct.pack(">f", value))

simple = st.sampled_from([b"\xc0", b"\xc2", b"\xc3"]) | integers() | float64s | valid_texts
unusual = simple | float32s | invalid_texts | bins() | exts() | event_times() | timestamps()


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[bytes]) -> bytes:
    drawn = draw(st.lists(items, max_size=5))
    if draw(st.booleans()):
        return bytes((0x90 | len(drawn),)) + b"".join(drawn)
    return _width(draw, 0, {2: 0xDC, 4: 0xDD}, len(drawn)) + b"".join(drawn)


@st.composite
def maps(draw: st.DrawFn, keys: st.SearchStrategy[bytes], values: st.SearchStrategy[bytes]) -> bytes:
    """Keys may be repeated."""
    drawn = draw(st.lists(st.tuples(keys, values), max_size=5))
    body = b"".join(key + value for key, value in drawn)
    if draw(st.booleans()):
        return bytes((0x80 | len(drawn),)) + body
    return _width(draw, 0, {2: 0xDE, 4: 0xDF}, len(drawn)) + body


plain_values = st.recursive(simple, lambda inner: arrays(inner) | maps(valid_texts, inner), max_leaves=12)
values = st.recursive(
    unusual, lambda inner: arrays(inner) | maps(valid_texts | unusual | arrays(simple), inner), max_leaves=12
)
few_keys = strs(st.sampled_from([b"a", b"b", b"\xff", b"\xfe", b"1", b"a/b", b"~key0", b"\xff\xff"])) | integers()
records = maps(valid_texts, plain_values) | maps(valid_texts | unusual, values) | maps(few_keys, values)
