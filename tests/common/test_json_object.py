"""JSON that goes on byte for byte: its depth, its times, and bytes that are not UTF-8."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from headrace_common.record import json_object
from headrace_common.record.contract import Reason
from headrace_common.record.json_object import Fault, JsonObject, ReadEvent, deepest, utc
from headrace_common.record.json_text import letters_of, readable, with_raw, write_text
from hypothesis import given
from hypothesis import strategies as st

from tests.driving import finish

texts = st.text(alphabet='[]{}"\\,:aü\n', max_size=6)
values = st.recursive(
    st.none() | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


class Wanted(msgspec.Struct):
    """Fields of certain types."""

    field: str | None = None
    number: int | None = None


def read(raw: bytes, depth: int = 64) -> Wanted | Fault:
    """Both ways that a receiver goes: quickly, then with care."""
    json_of = JsonObject(Wanted, depth)
    if (quick := json_of.quick(raw)) is not None:
        return quick
    found = finish(json_of.read(raw, 1 << 20))
    return found if isinstance(found, Fault) else found.fields


@pytest.mark.parametrize("before", [b"", b'"field":1,'], ids=["as wanted", "another type"])
def test_too_deep_for_any_reader_is_too_deep(before: bytes) -> None:
    """Also if the first reader has given up before the depth, because of a field's type."""
    for levels in (100, 5_000):
        found = read(b"{%b" % before + b'"x":' + b"[" * levels + b"]" * levels + b"}")
        assert isinstance(found, Fault)
        assert found.reason is Reason.TOO_DEEP


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(values, st.booleans(), st.integers(1, 5))
def test_depth_in_steps(value: Any, ascii_only: bool, size: int) -> None:
    """Wherever two steps meet: in a text, in an escape, in a letter of several bytes."""
    raw = json.dumps({"a": value}, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_object, "SHORT", size)
        assert finish(deepest(raw)) == depth({"a": value})
        assert finish(JsonObject(Wanted, 64).read(raw, 1 << 20)) == ReadEvent(Wanted(), raw, b"")


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"field":"a"}', Wanted("a")),
        (b'{"field":1}', Wanted()),
        (b'{"field":[{}],"number":7}', Wanted(number=7)),
        (b'{"field":"a","field":1}', Wanted()),
        (b'{"number":1e999,"field":"a"}', Wanted("a")),
        (b'{"number":1.0,"field":"a"}', Wanted("a")),
    ],
)
def test_a_field_of_another_type_is_absent(raw: bytes, found: Wanted) -> None:
    assert read(raw) == found


@pytest.mark.parametrize(
    ("text", "time"),
    [
        *(
            (same, same)
            for same in ("2026-11-21T09:59:34.076553041Z", "2026-11-21T09:59:34Z", "2026-11-21T09:59:34.5Z")
        ),
        *((same, same) for same in ("2026-11-21T09:59:34.000Z", "2024-02-29T23:59:59Z", "0001-01-01T00:00:00Z")),
        ("2026-11-21T09:59:34.1234567891Z", "2026-11-21T09:59:34.123456789Z"),
        ("2026-11-21T11:59:34.076+02:00", "2026-11-21T09:59:34.076Z"),
        ("2026-11-21T00:29:34-0930", "2026-11-21T09:59:34Z"),
        ("2026-11-21 09:59:34.10z", "2026-11-21T09:59:34.10Z"),
        *((text, None) for text in ("٢026-11-21T09:30:00Z", "2026-11-21T09:30:0٠Z", "2026-11-21T09:30:00.١Z", "", "Z")),
        *(
            (text, None)
            for text in ("yesterday", "2026-02-29T00:00:00Z", "2026-11-21T09:59:60Z", "2026-11-21T09:59:34")
        ),
        *((text, None) for text in ("2026-11-21T09:59:34.Z", "2026-11-21T09:59:34.x1Z", "2026-11-21T09:59:34+24:00")),
        *((text, None) for text in ("0001-01-01T00:00:00+01:00", "2026-11-21T24:00:00Z", "2026-11-21", None, 5, ["Z"])),
    ],
)
def test_a_time_in_utc(text: object, time: str | None) -> None:
    assert utc(text) == (None if time is None else time.encode())


def text_of(raw: bytes) -> str:
    return "".join(readable(letters) for letters in letters_of(raw))


def test_attributes_get_the_bytes() -> None:
    assert ReadEvent(Wanted(), b"", b"").attributes(None) is None
    assert ReadEvent(Wanted(), b"", b"").attributes(b'{"a":1}') == b'{"a":1}'
    for others in (None, b"{}", b'{"a":1}'):
        about = json.loads(ReadEvent(Wanted(), b"", b"\xe9").attributes(others) or b"")
        assert b64decode(about.pop("raw")) == b"\xe9"
        assert about == json.loads(others or b"{}") | {"notes": ["invalid_utf8"]}


def test_bytes_that_are_not_utf_8_are_read_and_kept() -> None:
    raw, json_of = b'{"a":"' + b"\xe9" * 1000 + b'","field":"\xe8"}', JsonObject(Wanted, 64)
    value = b'{"a":"' + "é".encode() * 1000 + '","field":"è"}'.encode()
    size = with_raw(value, raw)
    assert finish(json_of.read(raw, size)) == ReadEvent(Wanted("è"), value, raw)
    assert finish(json_of.read(raw, size - 1))[0] is Reason.OVERSIZED
    assert finish(json_of.read(b"\xe9", 100))[0] is Reason.BAD_JSON


@given(st.binary())
def test_a_text_is_written_as_it_is_read(data: bytes) -> None:
    out = bytearray()
    whole = write_text(out, data)
    assert json.loads(out) == text_of(data)
    assert whole == (data.decode("utf-8", "replace").encode() == data)
