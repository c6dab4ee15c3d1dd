"""msgpack to JSON without loss."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgpack
import pytest
from headrace_common.record.transcoding import Transcoder
from headrace_forward.entries.values import write_ext
from hypothesis import given, settings

from tests.forward.driving import NOW_MS, TIME, Outcome, Seen, drive, every_way, message, pack, parts_of, session
from tests.forward.msgpacks import records
from tests.tiers import examples

NAN = struct.pack(">d", math.nan)


def event_of(record: bytes, **limits: Any) -> Seen:
    (event,) = every_way(message(record), **limits).flat
    assert isinstance(event, Seen), event
    return event


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def entry(key: bytes, value: bytes) -> bytes:
    return b"\x81" + key + value


def timestamp(form: str, *numbers: int) -> tuple[bytes, str]:
    data = struct.pack(form, *numbers)
    header = {4: b"\xd6\xff", 8: b"\xd7\xff", 12: b"\xc7\x0c\xff"}[len(data)]
    return header + data, f'{{"$ext":[-1,"{b64(data)}"]}}'


VALUES = {
    "uint64 max": (b"\xcf" + b"\xff" * 8, "18446744073709551615"),
    "int64 min": (b"\xd3\x80" + b"\0" * 7, "-9223372036854775808"),
    "int above 2**63": (b"\xcf\x80" + b"\0" * 7, "9223372036854775808"),
    "wide zero": (b"\xcf" + b"\0" * 8, "0"),
    "float64": (b"\xcb" + struct.pack(">d", 0.1), "0.1"),
    "float32": (b"\xca" + struct.pack(">f", 0.5), "0.5"),
    "float32, not short": (b"\xca" + struct.pack(">f", 0.1), "0.10000000149011612"),
    "minus zero": (b"\xcb" + struct.pack(">d", -0.0), "-0.0"),
    "largest float": (b"\xcb" + struct.pack(">d", 1.7976931348623157e308), "1.7976931348623157e+308"),
    "smallest float": (b"\xcb" + struct.pack(">d", 5e-324), "5e-324"),
    "nan": (b"\xcb" + NAN, '"NaN"'),
    "nan of 32 bits": (b"\xca" + struct.pack(">f", math.nan), '"NaN"'),
    "infinity": (b"\xcb" + struct.pack(">d", math.inf), '"Infinity"'),
    "minus infinity": (b"\xcb" + struct.pack(">d", -math.inf), '"-Infinity"'),
    "nil": (b"\xc0", "null"),
    "the text null": (pack("null"), '"null"'),
    "braces in a text": (pack("[{" * 70), '"' + "[{" * 70 + '"'),
    "controls": (pack("\0\n\u2028\U0001f40e"), '"\\u0000\\n\u2028\U0001f40e"'),
    "bin": (pack(b"\xff\0"), '{"$bin":"/wA="}'),
    "ext": (b"\xc7\x03\x09abc", '{"$ext":[9,"YWJj"]}'),
    "ext of a negative type": (b"\xd4\xfea", '{"$ext":[-2,"YQ=="]}'),
    "empty ext": (b"\xc7\0\x09", '{"$ext":[9,""]}'),
    "EventTime, fixext": (b"\xd7\0" + struct.pack(">II", 1_700_000_000, 7), '"2023-11-14T22:13:20.000000007Z"'),
    "EventTime, ext 8": (b"\xc7\x08\0" + struct.pack(">II", 0, 0), '"1970-01-01T00:00:00.000000000Z"'),
    "the last EventTime": (b"\xd7\0\xff\xff\xff\xff" + struct.pack(">I", 999_999_999), '"2106-02-07T06:28:15.999999999Z"'),
    "ext 0 of four bytes": (b"\xd6\0abcd", '{"$ext":[0,"YWJjZA=="]}'),
    "timestamp 32": timestamp(">I", 1_700_000_000),
    "timestamp 64": timestamp(">Q", 7 << 34 | 9),
    "timestamp of whole microseconds": timestamp(">Q", 7000 << 34 | 9),
    "timestamp 96": timestamp(">Iq", 7, -9),
    "array": (b"\xdc\0\x02\x01\xc0", "[1,null]"),
    "map": (b"\xde\0\x01\xa1a\x01", '{"a":1}'),
    "empty array and map": (b"\x92\x90\x80", "[[],{}]"),
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES.values(), ids=VALUES)
def test_a_value_as_json(value: bytes, text: str) -> None:
    """At the top, in an array and in a map; nothing is noted, as nothing is lost."""
    event = event_of(b"\x83\xa1a" + value + b"\xa1b\x91" + value + b"\xa1c\x81\xa1d" + value)
    assert event.value.decode() == f'{{"a":{text},"b":[{text}],"c":{{"d":{text}}}}}'
    assert event.attributes == {"chunk": "c"}


KEYS = {
    "integer": (b"\x07", "7", "integer"),
    "negative": (b"\xff", "-1", "integer"),
    "binary": (b"\xc4\x01k", "k", "binary"),
    "binary, no text": (b"\xc4\x01\xff", "$bin:/w==", "binary"),
    "nil": (b"\xc0", "null", "other"),
    "true": (b"\xc3", "true", "other"),
    "float": (b"\xcb" + struct.pack(">d", 1.5), "1.5", "other"),
    "nan": (b"\xcb" + NAN, '"NaN"', "other"),
    "array": (b"\x92\x01\xa1a", '[1,"a"]', "other"),
    "map": (b"\x81\xa1a\x01", '{"a":1}', "other"),
    "ext": (b"\xd4\x05a", '{"$ext":[5,"YQ=="]}', "other"),
}


@pytest.mark.parametrize(("key", "text", "change"), KEYS.values(), ids=KEYS)
def test_a_key_that_is_no_text_is_named(key: bytes, text: str, change: str) -> None:
    pointer = "/" + text.replace("~", "~0").replace("/", "~1")
    event = event_of(entry(key, b"\x01"))
    assert event.record == {text: 1}
    assert event.attributes["keys"] == {pointer: change}
    event = event_of(entry(b"\xa1x", b"\x91" + entry(key, b"\x01")))
    assert event.record == {"x": [{text: 1}]}
    assert event.attributes["keys"] == {f"/x/0{pointer}": change}


REPEATED = {
    "the same": (b"\x83\xa1a\x01\xa1b\x02\xa1a\x03", {"a": [1, 3], "b": 2}, {"/a": "repeated"}),
    "thrice": (b"\x83\xa1a\x01\xa1a\x02\xa1a\x03", {"a": [1, 2, 3]}, {"/a": "repeated"}),
    "array first": (b"\x82\xa1a\x91\x01\xa1a\x02", {"a": [[1], 2]}, {"/a": "repeated"}),
    "colliding with an integer": (b"\x82\x01\x01\xa11\x02", {"1": [1, 2]}, {"/1": "repeated", "/1/0": "integer"}),
    "colliding with a bin": (b"\x82\xa1k\x01\xc4\x01k\x02", {"k": [1, 2]}, {"/k": "repeated", "/k/1": "binary"}),
    "equal values": (b"\x82\xa1a\x01\xa1a\x01", {"a": [1, 1]}, {"/a": "repeated"}),
    "slash and tilde": (b"\x82\xa3a/~\x01\xa3a/~\x02", {"a/~": [1, 2]}, {"/a~1~0": "repeated"}),
    # Decoded plainly and encoded again this has the length of what was received: the key is lost, the float32 has grown.
    "made up by a float32": (
        b"\x83\xa2ab\x01\xa2ab\x02\xa1f\xca" + struct.pack(">f", 0.5),
        {"ab": [1, 2], "f": 0.5},
        {"/ab": "repeated"},
    ),
}


@pytest.mark.parametrize(("record", "expected", "notes"), REPEATED.values(), ids=REPEATED)
def test_repeated_and_colliding_keys_give_an_array(record: bytes, expected: Any, notes: dict[str, str]) -> None:
    event = event_of(record)
    assert event.record == expected
    assert event.attributes["keys"] == notes
    nested = event_of(entry(b"\xa1x", record))
    assert nested.record == {"x": expected}
    assert nested.attributes["keys"] == {f"/x{pointer}": note for pointer, note in notes.items()}


INVALID: dict[str, tuple[bytes, Any, dict[str, bytes], Any]] = {
    "a value": (entry(b"\xa1a", b"\xa3x\xffy"), {"a": "xÿy"}, {"/a": b"x\xffy"}, None),
    "an array": (entry(b"\xa1a", b"\x92\xa1\xff\x91\xa1\xfe"), {"a": ["ÿ", ["þ"]]}, {"/a/0": b"\xff", "/a/1/0": b"\xfe"}, None),
    "a key": (b"\x82\xa1a\x01\xa2\xffk\x02", {"a": 1, "ÿk": 2}, {"~key1": b"\xffk"}, None),
    "keys that collide": (
        b"\x82\xa1\x81\x01\xa1\x8d\x02", {"\ufffd": [1, 2]}, {"~key0": b"\x81", "~key1": b"\x8d"}, {"/\ufffd": "repeated"},
    ),
    "values of a repeated key": (
        b"\x82\xa1a\xa1\xff\xa1a\xa1\xfe", {"a": ["ÿ", "þ"]}, {"/a/0": b"\xff", "/a/1": b"\xfe"}, {"/a": "repeated"},
    ),
    "a nested key": (entry(b"\xa1x", entry(b"\xa1\xff", b"\x01")), {"x": {"ÿ": 1}}, {"/x~key0": b"\xff"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("record", "content", "invalid", "keys"), INVALID.values(), ids=INVALID)
def test_what_is_no_utf8_is_kept_beside(record: bytes, content: Any, invalid: dict[str, bytes], keys: Any) -> None:
    event = event_of(record)
    assert event.record == content
    assert event.attributes["invalid_utf8"] == {place: b64(data) for place, data in invalid.items()}
    assert event.attributes.get("keys") == keys


def test_what_is_no_utf8_in_metadata() -> None:
    time = b"\x92" + pack(TIME) + b"\x82\xa1k\xa1\xff\x01\x02"
    data = b"\x93" + pack("t") + b"\x91\x92" + time + b"\x80" + pack({"chunk": "c"})
    (event,) = every_way(data).events
    assert event.attributes["metadata"] == {"k": "ÿ", "1": 2}
    assert event.attributes["invalid_utf8"] == {"~metadata/k": b64(b"\xff")}
    assert event.attributes["keys"] == {"~metadata/1": "integer"}


@pytest.mark.parametrize("data", [b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82"])
def test_every_kind_of_what_is_no_utf8_keeps_its_bytes(data: bytes) -> None:
    event = event_of(entry(b"\xa1a", bytes((0xA0 | len(data),)) + data))
    assert base64.b64decode(event.attributes["invalid_utf8"]["/a"]) == data


class TestDepth:
    """The record itself is one level."""

    @staticmethod
    def nested(levels: int, *, value: bytes = b"\x01") -> bytes:
        return b"\x81\xa1a" * (levels - 1) + b"\x81\xa1a" + value

    @pytest.mark.parametrize("value", [b"\x01", b"\xc4\x01a"], ids=["fast", "slow"])
    def test_both_sides_of_the_limit(self, value: bytes) -> None:
        assert isinstance(one(every_way(message(self.nested(64, value=value)))), Seen)
        reject = one(every_way(message(self.nested(65, value=value))))
        assert reject.reason.value == "too_deep"
        assert reject.raw == b"\x92" + pack(TIME) + self.nested(65, value=value)

    def test_of_arrays(self) -> None:
        for extra, deep in ((0, False), (1, True)):
            record = entry(b"\xa1a", b"\x91" * (62 + extra) + b"\x90")
            assert isinstance(one(every_way(message(record))), Seen) is not deep

    def test_the_limit_is_a_setting(self) -> None:
        assert isinstance(one(every_way(message(self.nested(3)), depth=3)), Seen)
        assert one(every_way(message(self.nested(4)), depth=3)).reason.value == "too_deep"


def one(outcome: Outcome) -> Any:
    (part,) = outcome.flat
    return part


# Any record: nothing is lost


class _Pairs(list[Any]):
    pass


class _Ext(NamedTuple):
    code: int
    data: bytes


def canonical(value: Any) -> Any:
    """A decoded value with its types told apart, maps as pairs in an order of their own."""
    if isinstance(value, _Pairs):
        return ("map", sorted(((canonical(key), canonical(item)) for key, item in value), key=repr))
    if type(value) is list:
        return ("array", [canonical(item) for item in value])
    if isinstance(value, msgpack.Timestamp):
        value = _Ext(-1, value.to_bytes())
    return (type(value).__name__, repr(value))


class Restorer:
    """Makes the original out of an event's JSON and its notes."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self.keys = attributes.get("keys", {})
        self.bins = set(attributes.get("bin", ()))
        self.invalid = {place: base64.b64decode(data) for place, data in attributes.get("invalid_utf8", {}).items()}

    def value(self, value: Any, path: str = "") -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, list):
            return [self.value(item, f"{path}/{index}") for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"$bin"}:
            return base64.b64decode(value["$bin"])
        if value.keys() == {"$ext"}:
            code, data = value["$ext"]
            return _Ext(code, base64.b64decode(data))
        return self.map(value, path)

    def text(self, text: str, path: str) -> Any:
        if path in self.bins:
            return text.encode()
        if path in self.invalid:
            return self.invalid[path].decode("utf-8", "surrogateescape")
        if text in ("NaN", "Infinity", "-Infinity"):
            return float(text)
        if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", text):
            seconds = int(datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp())
            return _Ext(0, struct.pack(">II", seconds, int(text[20:29])))
        return text

    def map(self, value: dict[str, Any], path: str) -> _Pairs:
        pairs = _Pairs()
        places = sorted(
            (place for place in self.invalid if re.fullmatch(re.escape(path) + r"~key\d+", place)),
            key=lambda place: int(place.rpartition("~key")[2]),
        )
        for text, item in value.items():
            place = f"{path}/{text.replace('~', '~0').replace('/', '~1')}"
            originals = [
                self.invalid[found] for found in places if self.invalid[found].decode("cp1252", "replace") == text
            ]
            repeated = self.keys.get(place) == "repeated"
            items = item if repeated else [item]
            for index, inner in enumerate(items):
                at = f"{place}/{index}" if repeated else place
                pairs.append((self.key(text, originals, index, self.keys.get(at), path), self.value(inner, at)))
        return pairs

    def key(self, text: str, originals: list[bytes], index: int, change: str | None, path: str) -> Any:
        if originals:
            return originals[index].decode("utf-8", "surrogateescape")
        if change == "integer":
            return int(text)
        if change == "binary":
            return base64.b64decode(text.removeprefix("$bin:")) if text.startswith("$bin:") else text.encode()
        if change == "other":
            return Restorer({}).value(json.loads(text))
        return text


def original(record: bytes) -> Any:
    return msgpack.unpackb(
        record, unicode_errors="surrogateescape", strict_map_key=False, object_pairs_hook=_Pairs, ext_hook=_Ext
    )


def has_odd_keys(attributes: dict[str, Any]) -> bool:
    """Keys that are no text *and* hold bytes that are none: their notes are there, but `Restorer` does not place them."""
    inside = any("~key" in place and not re.search(r"~key\d+$", place) for place in attributes.get("invalid_utf8", {}))
    return inside or ("other" in attributes.get("keys", {}).values() and bool(attributes.get("invalid_utf8")))


@settings(max_examples=examples(2000))
@given(records)
def test_nothing_is_lost(record: bytes) -> None:
    (event,) = drive([message(record)]).flat
    assert isinstance(event, Seen)
    if not has_odd_keys(event.attributes):
        restored = Restorer(event.attributes).value(event.record)
        if event.record == {}:
            restored = _Pairs()
        assert canonical(restored) == canonical(original(record))


@settings(max_examples=examples(50))
@given(records, records)
def test_a_neighbour_changes_nothing(first: bytes, second: bytes) -> None:
    """Entries are decoded by the slice: one that is unusual must not touch the others."""
    alone = [one(drive([message(record)])).value for record in (first, second)]
    entries = b"".join(b"\x92" + pack(TIME) + record for record in (first, second, first))
    together = drive([pack(["t", entries, {"chunk": "c"}])])
    assert [event.value for event in together.events] == [alone[0], alone[1], alone[0]]


# Long records, which are made in steps


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
        with pytest.raises(ValueError, match="not one whole msgpack object"):
            list(Transcoder(64, 1 << 20, write_ext).write(raw))


def test_both_sides_of_the_limit_of_a_long_one() -> None:
    record = b"\x81\xa1a\xda\x80\0" + b"x" * 0x8000
    for limit, reason in ((0x8000 + 100, None), (0x8000 + 1, "oversized")):
        driven = session(event_bytes=limit)
        driven.receive(b"\x93\xa1t\x91\x92\x01" + record + pack({}), NOW_MS)
        (part,) = parts_of(*driven.frames())
        assert getattr(getattr(part, "reason", None), "value", None) == reason
