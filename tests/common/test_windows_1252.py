"""Text that is not UTF-8: read as Windows-1252, its bytes kept beside, in bounded steps."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.json_text import text_of
from headrace_common.record.windows_1252 import STEPS, MendedJson, Refusal, mended
from hypothesis import given
from hypothesis import strategies as st

MOST = 1 << 20


def run(raw: bytes, depth: int = 64, most: int = MOST) -> tuple[MendedJson | Refusal, int]:
    steps = mended(raw, depth, most)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


def well(raw: bytes) -> MendedJson:
    found, _ = run(raw)
    assert isinstance(found, MendedJson)
    return found


def test_the_bytes_that_it_does_not_define() -> None:
    undefined = bytes((0x81, 0x8D, 0x8F, 0x90, 0x9D))
    assert text_of(undefined) == "\ufffd" * 5
    assert text_of(b"\x80 \xe9\xff") == "€ éÿ"
    assert "\ufffd" not in text_of(bytes(each for each in range(256) if each not in undefined))


class TestPlaces:
    def test_in_objects_and_arrays(self) -> None:
        found = well(b'[ {"a" : ["\xe9" , 1, {"b":"\xe8"} ], "c/~":"\xe7"} ,"\xe6"]')
        assert bytes(found.value).decode() == '[ {"a" : ["é" , 1, {"b":"è"} ], "c/~":"ç"} ,"æ"]'
        assert list(json.loads(found.note)) == ["/0/a/0", "/0/a/2/b", "/0/c~1~0", "/1"]

    def test_in_keys_and_below_them(self) -> None:
        found = well(b'{"x":1,"\xe9":{"\xe8":"\xe7"}}')
        assert list(json.loads(found.note)) == ["~key1", "/é~key0", "/é/è"]

    def test_a_key_is_named_without_its_escapes(self) -> None:
        assert list(json.loads(well(b'{"a\\n\\u00e9":"\xe9"}').note)) == ["/a\né"]

    def test_other_texts_stay_as_they_are(self) -> None:
        raw = '{"a":"grün \\" \\\\","b":["\\u00fc",'.encode()
        found = well(raw + b'"\xfc"]}')
        assert found.value == raw + '"ü"]}'.encode()
        assert json.loads(found.note) == {"/b/1": "/A=="}

    def test_of_a_repeated_key_would_be_the_same(self) -> None:
        found, _ = run(b'{"a":"\xe9","a":"\xe8"}')
        assert found[0] is Reason.BAD_JSON


def test_attributes_get_the_note() -> None:
    assert MendedJson(b"", b"").attributes(None) is None
    assert MendedJson(b"", b"").attributes(b'{"a":1}') == b'{"a":1}'
    note = b'{"/a":"6Q=="}'
    for others in (None, b"{}"):
        assert MendedJson(b"", note).attributes(others) == b'{"invalid_utf8":%b}' % note
    assert MendedJson(b"", note).attributes(b'{"a":1}') == b'{"a":1,"invalid_utf8":%b}' % note


def test_depth_from_both_sides() -> None:
    assert isinstance(run(b'[[["\xe9"]]]', depth=3)[0], MendedJson)
    found, _ = run(b'[[["\xe9"]]]', depth=2)
    assert found[0] is Reason.TOO_DEEP


def test_size_from_both_sides() -> None:
    raw = b'{"a":"' + b"\xe9" * 1000 + b'"}'
    sizes = [most for most in range(3000, 4000, 10) if isinstance(run(raw, most=most)[0], MendedJson)]
    assert sizes == list(range(sizes[0], 4000, 10))
    found = well(raw)
    assert len(found.value) + len(found.note) <= sizes[0] < len(found.value) + len(found.note) + 50
    assert run(raw, most=sizes[0] - 10)[0][0] is Reason.OVERSIZED


@pytest.mark.parametrize(
    "piece", [b'"\xe9",', b"1,", b"[],", b'{"a":1},'], ids=["texts", "numbers", "arrays", "objects"]
)
def test_steps_grow_with_the_tokens(piece: bytes) -> None:
    few, many = (run(b"[" + piece * count + b'"\xe9"]')[1] for count in (5000, 10_000))
    assert 5000 // STEPS <= few <= 5 * 5000 // STEPS
    assert 1.9 * few <= many <= 2.1 * few + 4  # a table of places grows by halves


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def spoiled(value: Any) -> bytes:
    """JSON in which each text that Latin-1 can write is in Latin-1, the others in UTF-8."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogatepass")
    if isinstance(value, list):
        return b"[" + b",".join(map(spoiled, value)) + b"]"
    if isinstance(value, dict):
        return b"{" + b",".join(spoiled(key) + b":" + spoiled(item) for key, item in value.items()) + b"}"
    return json.dumps(value).encode()


@given(JSON)
def test_any_json_with_any_bytes_gives_json_and_the_bytes(value: Any) -> None:
    raw = spoiled(value)
    found, _ = run(raw)
    if not isinstance(found, MendedJson):  # two keys that become one
        assert found[0] is Reason.BAD_JSON
        return
    json.loads(bytes(found.value).decode())
    for place, kept in json.loads(found.note or b"{}").items():
        assert b'"%b"' % b64decode(kept) in raw, place
