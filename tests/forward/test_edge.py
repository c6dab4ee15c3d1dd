"""Hand-made inputs, of which it is known what fluentd, Fluent Bit and OpenTelemetry do with each (edge/MATRIX.json)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from backports import zstd
from headrace_forward.entries.transcoding import MOST_KEYS

from tests.forward.driving import TIME, Outcome, Seen, ack, event_time, every_way, message, pack
from tests.forward.test_vectors import VECTORS

EDGE = VECTORS / "edge"
CHUNK = "Y2h1bmsx"
SECOND = "2023-11-14T22:13:20Z"
NANO = "2023-11-14T22:13:20.000000005Z"
RECEIVED = "2023-11-14T22:15:23.456Z"


@dataclass(frozen=True)
class Verdict:
    """What must come out: `parts` are (record, time) of events and reasons of rejects; `chunk` is what is acknowledged."""

    parts: tuple[Any, ...] = ()
    chunk: Any = None
    error: str | None = None


def stored(*records: Any, time: str = SECOND, chunk: Any = CHUNK) -> Verdict:
    return Verdict(tuple((record, time) for record in records), chunk)


def quarantined(*reasons: str, chunk: Any = CHUNK) -> Verdict:
    return Verdict(reasons, chunk)


def closed(problem: str) -> Verdict:
    return Verdict(error=problem)


# A frame is refused by closing only where the stream itself cannot be trusted. What is soundly framed but makes no sense is
# kept in quarantine and acknowledged, as sending it again could never succeed. That is where most differences come from.
VERDICTS = {
    "ok_message": stored({"m": "ok"}),
    "ext8_c7_time": stored({"m": "c7"}, time=NANO),
    "fixext8_d7_time": stored({"m": "d7"}, time=NANO),
    "float_time": stored(
        {"m": "float"}, time="2023-11-14T22:13:20.25Z"
    ),  # OTel and Fluent Bit close: its events are lost
    "neg_time": stored({"m": "neg"}, time="1969-12-31T23:59:55Z"),  # Fluent Bit closes
    "nil_time": stored({"m": "nil"}, time=RECEIVED),  # OTel and Fluent Bit close
    # The second element is a str: PackedForward with a payload that is no entries. All real servers keep silent.
    "str_time_digits_msg": quarantined("bad_encoding", chunk=None),
    "ext_type5_time": quarantined("bad_time"),  # all close
    "ext0_len4_time": quarantined("bad_time"),  # fluentd acknowledges and stores a time of its own making
    "ns_over_1e9": stored(
        {"m": "ns"}, time="2023-11-14T22:13:22.000000000Z"
    ),  # carried over as fluentd does; Fluent Bit closes
    "record_not_map": quarantined("bad_record"),
    "record_nil": quarantined("bad_record"),  # no real server acknowledges: the client would send it for ever
    "record_int_keys": stored({"1": "a"}),
    "record_bin_val": stored({"b": {"$bin": "//4="}}),
    "record_bin_key": stored({"k": "v"}),
    "record_bad_utf8": stored({"m": "ÿþ"}),
    "record_nested_ext": stored({"t": "2023-11-14T22:13:20.000000001Z", "u": {"$ext": [9, "eno="]}}),  # fluentd closes
    "tag_bin": stored({"m": "tagbin"}),
    "tag_bad_utf8": quarantined("bad_message"),
    "tag_int": quarantined("bad_message"),  # OTel and Fluent Bit close
    "tag_empty": stored({"m": "x"}),
    "opt_nil": stored({"m": "optnil"}, chunk=None),  # Docker 18's log driver; OTel closes
    "opt_not_map": quarantined("bad_message", chunk=None),  # the others drop it silently or close
    "chunk_bin": stored({"m": "x"}, chunk=b"abc"),  # OTel does not answer, Fluent Bit closes
    "chunk_int": stored({"m": "x"}, chunk=7),  # the same
    "chunk_empty": stored({"m": "x"}, chunk=""),  # OTel does not answer
    "len1_array": quarantined("bad_message", chunk=None),  # the others drop it silently or close
    "len2_array": quarantined("bad_message", chunk=None),
    "len5_array": stored({"m": "5"}),  # OTel closes
    "empty_array": quarantined("bad_message", chunk=None),
    "nil": Verdict(),  # a heartbeat; OTel and Fluent Bit close
    "int_obj": closed("neither a message nor a heartbeat"),  # fluentd goes on and warns of every byte
    "map_obj": closed("neither a message nor a heartbeat"),
    "invalid_c1": closed("neither a message nor a heartbeat"),
    "fwd_empty": Verdict(chunk=CHUNK),
    "fwd_meta": stored(
        {"m": "meta"}, time="2023-11-14T22:13:20.000000001Z"
    ),  # fluentd 1.14 and OTel do not know metadata
    "fwd_meta_empty_int": stored({"m": "metaint"}),
    "fwd_one_bad": Verdict(
        (({"m": "g1"}, SECOND), "bad_record", ({"m": "g2"}, SECOND)), CHUNK
    ),  # Fluent Bit loops for ever
    "fwd_entry3": quarantined("bad_record"),
    "packed_bin": Verdict((({"m": "pb"}, SECOND), ({"m": "pb2"}, "2023-11-14T22:13:20.000000009Z")), CHUNK),
    "packed_str": stored({"m": "ps"}),
    "packed_empty": Verdict(chunk=CHUNK),  # Fluent Bit closes
    "packed_truncated": Verdict((({"m": "t1"}, SECOND), "bad_encoding"), CHUNK),  # the others lose the rest, or close
    "packed_garbage": quarantined("bad_encoding"),  # fluentd and OTel close, Fluent Bit acknowledges and loses it
    "packed_size_wrong": stored({"m": "sz"}, chunk="c"),
    "gzip": stored({"m": "gz"}, chunk="c"),
    "gzip_concat": stored({"m": "gz1"}, {"m": "gz2"}, chunk="c"),
    "gzip_corrupt": quarantined("compression", chunk="c"),  # Fluent Bit acknowledges and loses it, the others close
    "gzip_noflag": stored({"m": "gzn"}, chunk="c"),  # fluentd acknowledges and loses it
    "compressed_text": stored({"m": "txt"}, chunk="c"),
    "compressed_unknown": stored({"m": "unk"}, chunk="c"),
    "zstd": stored({"m": "zs"}, chunk="c"),  # OTel closes
    "signal1": quarantined("bad_message", chunk="c"),  # metrics are no logs; OTel closes
    "json_msg": stored({"m": "json"}, chunk="jc"),  # OTel and Fluent Bit close, for all of JSON
    "json_2msgs": stored({"m": "j1"}, {"m": "j2"}, chunk="jc"),
    "json_fwd": stored({"m": "jf"}, chunk="jc"),
    "json_map": closed("neither a message nor a heartbeat"),  # fluentd ignores it
}


WHOLE = {"bad_message", "compression"}
"""Reasons for which a message is kept as it came."""


def check(data: bytes, expected: Verdict, **limits: Any) -> Outcome:
    outcome = every_way(data, **limits)
    parts = tuple((part.content, part.time) if isinstance(part, Seen) else part.reason.value for part in outcome.flat)
    assert Verdict(parts, error=None if outcome.error is None else str(outcome.error)) == Verdict(
        expected.parts, error=expected.error
    )
    reply = orjson.dumps({"ack": expected.chunk}) if data[:1] == b"[" else ack(expected.chunk)
    assert outcome.replies == ([] if expected.chunk is None else [reply])
    assert not outcome.parts or outcome.unacknowledgeable is (len(outcome.parts) > len(outcome.replies))
    assert all(reject.raw == data for reject in outcome.rejects if reject.reason.value in WHOLE)
    return outcome


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(name: str) -> None:
    check((EDGE / f"{name}.bin").read_bytes(), VERDICTS[name])


def test_there_is_a_verdict_for_every_case() -> None:
    matrix = orjson.loads((EDGE / "MATRIX.json").read_bytes())
    assert VERDICTS.keys() == matrix.keys() == {path.stem for path in EDGE.glob("*.bin")}


def test_whatever_any_real_server_acknowledges_we_acknowledge() -> None:
    """What is not in the bytes' framing is never a reason to close, or to stay silent."""
    matrix = orjson.loads((EDGE / "MATRIX.json").read_bytes())
    for name, servers in matrix.items():
        if any(answer.startswith("ACK") for answer in servers.values()):
            assert VERDICTS[name].chunk is not None, name


# More that no capture shows

TIMED = "2023-11-14T22:13:20.123456789Z"
GOOD = {"m": 1}
ENTRY = pack([TIME, GOOD])
OPTION = pack({"chunk": CHUNK})
NO_TIMESTAMP = b"\xc7\x05\xff12345"
"""Ext type -1 with five bytes: soundly framed, but msgpack's own decoder raises."""


def deep(levels: int) -> bytes:
    return b"\x91" * levels + b"\x01"


def nested_keys(levels: int) -> bytes:
    """A map whose key is a map, whose key is a map, and so on."""
    return b"\x81" * levels + b"\xa1a" + b"\x01" * levels


def of(record: bytes = pack(GOOD), time: bytes = pack(TIME), tag: bytes = pack("t"), option: bytes = OPTION) -> bytes:
    return b"\x94" + tag + time + record + option


def listed(*entries: bytes) -> bytes:
    return b"\x93" + pack("t") + bytes((0x90 + len(entries),)) + b"".join(entries) + OPTION


def packed(body: bytes, **option: Any) -> bytes:
    """As fluentd packs entries, whatever they are: a msgpack str of 32-bit length, mostly no UTF-8."""
    return b"\x93" + pack("t") + b"\xdb" + len(body).to_bytes(4, "big") + body + pack({"chunk": CHUNK, **option})


def in_three(compress: Any) -> bytes:
    """Entries compressed in three pieces, one of them cutting an entry in two."""
    return compress(ENTRIES[:5]) + compress(ENTRIES[5:40]) + compress(ENTRIES[40:])


ENTRIES = ENTRY * 6
GZIP, ZSTD = gzip.compress(ENTRIES), zstd.compress(ENTRIES)
SIX = stored(*[GOOD] * 6, time=TIMED)
REST = b"\xff\xff\xff\xffrest"
MESSAGE, ENCODING, COMPRESSED = (quarantined(reason) for reason in ("bad_message", "bad_encoding", "compression"))
MADE: dict[str, list[tuple[Verdict, list[bytes]]]] = {
    "tags": [(MESSAGE, [
        of(tag=tag)
        for tag in (
            NO_TIMESTAMP, deep(70), pack({"a": [1, b"\xff"]}), b"\xc0", nested_keys(40), pack(b"\xff\xfe"), pack("\udcff"),
        )
    ])],
    "chunks that name nothing": [(quarantined("bad_message", chunk=None), [
        of(option=b"\x81\xa5chunk" + chunk)
        for chunk in (NO_TIMESTAMP, deep(100), b"\xc3", b"\x80", pack(1.5), pack(TIME))
    ])],
    "keys of an option": [
        (stored(GOOD, time=TIMED, chunk="c"), [
            of(option=b"\x81" + key + b"\xa1c") for key in (b"\xd9\x05chunk", b"\xda\0\x05chunk", b"\xdb\0\0\0\x05chunk")
        ]),
        (stored(GOOD, time=TIMED, chunk=None), [
            of(option=b"\x81" + key + b"\xa1c")
            for key in (b"\xa6chunk2", b"\xa4chun")
        ]),
        (quarantined("bad_message", chunk=None), [
            of(option=b"\x81" + key + b"\xa1c") for key in (b"\xc4\x05chunk", b"\x91\xa5chunk", b"\xc7\x05\x01chunk")
        ]),
    ],
    "times": [(Verdict(((GOOD, TIMED), "bad_time", (GOOD, TIMED)), CHUNK), [
        listed(ENTRY, b"\x92" + time + record, ENTRY)
        for time in (b"\xd4\xfe\x01", b"\xc7\0\x80", deep(70), nested_keys(40), b"\xa11", b"\xc4\0", b"\xc2", b"\x80")
        for record in (pack(GOOD), b"\x81\xa1f\xca\0\0\0\0", b"\x81\xa1a\xa1\xff")
    ]), (Verdict(((GOOD, TIMED), "bad_record"), CHUNK), [listed(ENTRY, b"\x92" + NO_TIMESTAMP + pack(GOOD))])],
    "keys": [(quarantined("bad_record"), [of(b"\x81" + key + b"\x01") for key in (b"\x91\x01", b"\x81\xa1a\x01")])],
    "the last times that are": [
        (stored({}, time=time), [of(b"\x80", pack(event_time(seconds, nanoseconds)))])
        for time, seconds, nanoseconds in (
            ("2106-02-07T06:28:13.000000000Z", 0xFFFF_FFFD, 0), ("2106-02-07T06:28:15.000000001Z", 0xFFFF_FFFF, 1),
        )
    ],
    "compression is what the first bytes say": [(SIX, [
        packed(body, compressed=claim)
        for body, claim in (
            (ENTRIES, "text"), (GZIP, "gzip"), (in_three(gzip.compress), "gzip"), (gzip.compress(ENTRY) * 6, "gzip"),
            (gzip.compress(b"") + GZIP + gzip.compress(b""), "gzip"), (ZSTD, "zstd"), (in_three(zstd.compress), "zstd"),
            (GZIP, "zstd"), (ZSTD, "gzip"), (GZIP, "text"), (GZIP, "br"), (ENTRIES, "gzip"), (ENTRIES, "br"),
        )
    ]), (Verdict(chunk=CHUNK), [packed(b"", compressed="gzip")])],
    "what does not inflate": [(COMPRESSED, [
        packed(body, compressed="gzip")
        for body in (
            GZIP[:-1], GZIP[:-9], GZIP + b"x", GZIP[:20] + b"\xff\xff" + GZIP[22:], b"\x1f\x8b", GZIP + b"\0\0x", GZIP + bytes(9),
            ZSTD[:-3], ZSTD + b"junk, junk", gzip.compress(b"") * 1000, zstd.compress(b"") * 1000,
        )
    ])],
    "compressed twice": [(ENCODING, [packed(gzip.compress(GZIP)), packed(zstd.compress(ZSTD))])],
    "payloads without an end": [(Verdict(((GOOD, TIMED), "bad_encoding"), CHUNK), [
        packed(pack_of(ENTRY + rest))
        for pack_of in (bytes, gzip.compress)
        for rest in (
            b"\x92\x01" + b"\x91" * 10_000, b"\xdd" + REST, b"\x92\x01\xdf" + REST, b"\x92\x01\x81\xa1k\xdd" + REST,
            b"\x92\x01\x81\xa1k\xdb" + REST, b"\x91", b"\x92\x01\xa5a", b"\xcb\0",
        )
    ])],
    "metrics and traces are no logs": [(MESSAGE, [
        pack([*elements, {"fluent_signal": number, "chunk": CHUNK}])
        for number in (1, 2, 3, -1)
        for elements in (["m", b"\x82\xa4meta\x80\xa7metrics\x90"], ["m", [[1, {"a": 1}]]], ["m", 1, {"a": 1}])
    ])],
    "what closes": [
        (closed("a message of 17 elements"), [b"\xdc\0\x11" + b"\xc0" * 17]),
        # Ext 32 of 2**32 - 1 bytes: msgpack overflows its length and takes it for empty, so what follows is out of step
        (closed("not msgpack: Input data was truncated"), [of(b"\x81\xa1a\xc9\xff\xff\xff\xff")]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", MADE)
def test_made(what: str) -> None:
    for expected, messages in MADE[what]:
        for data in messages:
            check(data, expected)


CHUNKS = [
    b"\xa3abc", b"\xd9\x03abc", b"\xd9\x28" + b"x" * 40, b"\xda\0\x03abc", b"\xdb\0\0\0\x03abc", b"\xda\x04\0" + b"y" * 1024,
    b"\xb9Y2h1bmsxY2h1bmsxY2h1bmsx\n", b"\xa4\xff\xfe\0\n", b"\xa0", b"\xd9\0", b"\xc4\x03abc", b"\xc5\0\x03abc",
    b"\xc6\0\0\0\x03abc", b"\xc4\0", b"\x07", b"\0", b"\xff", b"\xcc\x07", b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\0" * 7,
]  # fmt: skip


def test_a_chunk_comes_back_unchanged_in_its_own_type() -> None:
    for chunk in CHUNKS:
        assert every_way(of(option=b"\x81\xa5chunk" + chunk)).replies == [b"\x81\xa3ack" + chunk]


@pytest.mark.parametrize(
    ("start", "end"),
    [(event_time(0xFFFF_FFFF, 0), event_time(0xFFFF_FFFE, 0)), (-1, -2), (2**64 - 1, 2**64 - 2)],
    ids=["EventTime", "integer", "unsigned"],
)
def test_marks_of_a_group_have_no_time_themselves(start: Any, end: Any) -> None:
    """Fluent Bit has groups from OTLP (flb_log_event.h). The resource is in their marks alone."""
    resource, schema = {"resource": {"attributes": {"service.name": "shop"}}, "scope": {}}, {"schema": "otlp"}
    for bare in (False, True):
        entries = [start if bare else [start, schema], resource], [1_700_000_000, {"log": "1"}], [end, {}]
        found = every_way(pack(["t", b"".join(map(pack, entries)), {"chunk": "c"}])).events
        assert [(event.time, event.attributes.get("group")) for event in found] == [
            (RECEIVED, "start"), (SECOND, None), (RECEIVED, "end"),
        ]  # fmt: skip
        assert (found[0].json, found[0].attributes.get("metadata")) == (resource, None if bare else schema)


def test_the_metadata_of_a_message() -> None:
    """Fluent Bit in Message mode puts it into the option; an entry's own comes first."""
    option = {"chunk": "c", "metadata": {"otlp": {"severity": 9}, "b": b"\xff"}}
    (event,) = every_way(message(pack(GOOD), option=option)).events
    assert event.attributes["metadata"] == {"otlp": {"severity": 9}, "b": {"$bin": "/w=="}}
    (own,) = every_way(pack(["t", [[[TIME, {"own": 1}], GOOD]], option])).events
    assert own.attributes["metadata"] == {"own": 1}


def test_of_many_keys_none_are_compared() -> None:
    """A map may have as many as are remembered; of one with more, what came is kept."""
    for count, noted in ((MOST_KEYS, None), (MOST_KEYS + 1, ["repeated_keys"])):
        record = {f"k{number}": number for number in range(count)}
        (event,) = every_way(message(pack(record))).events
        assert (event.json, event.attributes.get("notes")) == (record, noted)


# In JSON


def nested(levels: int) -> str:
    return f'["t",1,{{"m":{"[" * (levels - 1)}"]]["{"]" * (levels - 1)}}},{{"chunk":"c"}}]'


FIRST, C = "1970-01-01T00:00:01Z", '{"chunk":"c"}'
JSON: list[tuple[str, Verdict]] = [
    *(
        (f'["t",{time},{{"m":1}},{C}]', quarantined("bad_time", chunk="c"))
        for time in ("1e999999999", "-1e30", "true", "{}", "999999999999999")
    ),
    (
        f'["t",[[1,{{"a":1}}],[1,"x"],5,[1,{{}},3],[1,{{"b":2}}]],{C}]',
        Verdict((({"a": 1}, FIRST), *["bad_record"] * 3, ({"b": 2}, FIRST)), "c"),
    ),
    (f'["t","AAAA",{C}]', quarantined("bad_message", chunk="c")),
    *(
        (text, quarantined("bad_message", chunk=None))
        for text in (
            '["t"]', "[]", '["t",1]', '["t",1,{},5]', '["t",1,{},{"a":%s}]' % ("[" * 65 + "]" * 65), "[5,1,{}]", "[null,1,{}]",
            '[{"a":1},1,{}]',
        )
    ),
    ('["",1,{}]', stored({}, time=FIRST, chunk=None)),
    ('["t",1,{"n":1}]["t",1,{}]\r\n null\tnull["t",1,{"n":3}] ', stored({"n": 1}, {}, {"n": 3}, time=FIRST, chunk=None)),
    (nested(64), stored({"m": orjson.loads(nested(64))[2]["m"]}, time=FIRST, chunk="c")),
    (nested(65), quarantined("too_deep", chunk="c")),
    (f'["t",1,{{}},{C},5,6,{",".join("7" * 1000)}]', stored({}, time=FIRST, chunk="c")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), JSON, ids=lambda given: given[:30] if isinstance(given, str) else "")
def test_json(text: str, expected: Verdict) -> None:
    check(text.encode(), expected)
