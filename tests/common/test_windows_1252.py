"""Bytes that are not UTF-8: read as Windows-1252, kept beside, in bounded steps."""

from __future__ import annotations

import json
from base64 import b64decode

from headrace_common.record.contract import Reason
from headrace_common.record.json_text import PIECE, write_text
from headrace_common.record.windows_1252 import MendedJson, Refusal, mended, with_raw
from hypothesis import given
from hypothesis import strategies as st

MOST = 1 << 20


def run(raw: bytes, most: int = MOST) -> tuple[MendedJson | Refusal, int]:
    steps = mended(raw, most)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def read(raw: bytes) -> str:
    found, _ = run(raw)
    assert isinstance(found, MendedJson)
    assert found.raw == raw
    return bytes(found.value).decode()


def test_each_byte_that_is_no_letter_of_utf_8() -> None:
    assert read(bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))) == "\ufffd" * 5
    assert read(b"\x80 \xe9\xff") == "€ éÿ"
    assert read('{"grün":"'.encode() + b'gr\xfcn"}') == '{"grün":"grün"}'
    assert read(b"\xed\xa0\x80") == "í\xa0€"


def test_a_letter_at_the_end_of_a_piece() -> None:
    for before in range(PIECE - 4, PIECE + 1):
        assert read(b"x" * before + "\U0001f600é".encode() + b"\xe9") == "x" * before + "\U0001f600éé"


def test_attributes_get_the_bytes() -> None:
    assert MendedJson(b"", b"").attributes(None) is None
    assert MendedJson(b"", b"").attributes(b'{"a":1}') == b'{"a":1}'
    for others in (None, b"{}", b'{"a":1}'):
        about = json.loads(MendedJson(b"", b"\xe9").attributes(others) or b"")
        assert b64decode(about.pop("raw")) == b"\xe9"
        assert about == json.loads(others or b"{}") | {"notes": ["invalid_utf8"]}


def test_size_from_both_sides() -> None:
    raw = b'{"a":"' + b"\xe9" * 1000 + b'"}'
    size = with_raw(read(raw).encode(), raw)
    assert isinstance(run(raw, size)[0], MendedJson)
    assert run(raw, size - 1)[0][0] is Reason.OVERSIZED


def test_steps_grow_with_the_bytes() -> None:
    assert [run(bytes(count * PIECE) + b"\xff")[1] for count in (1, 5, 10)] == [2, 6, 11]


@given(st.binary())
def test_a_text_is_written_as_it_is_read(data: bytes) -> None:
    out = bytearray()
    whole = write_text(out, data)
    assert json.loads(out) == read(data)
    assert whole == (data.decode("utf-8", "replace").encode() == data)
