"""Hand-made inputs, of which it is known what fluentd, Fluent Bit and OpenTelemetry do with each (edge/MATRIX.json)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from tests.forward.driving import Outcome, Seen, ack, every_way
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


def verdict(outcome: Outcome) -> Verdict:
    parts = tuple((part.content, part.time) if isinstance(part, Seen) else part.reason.value for part in outcome.flat)
    return Verdict(parts, error=None if outcome.error is None else str(outcome.error))


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(name: str) -> None:
    outcome = every_way((EDGE / f"{name}.bin").read_bytes())
    expected = VERDICTS[name]
    assert verdict(outcome) == Verdict(expected.parts, error=expected.error)
    reply = orjson.dumps({"ack": expected.chunk}) if name.startswith("json") else ack(expected.chunk)
    assert outcome.replies == ([] if expected.chunk is None else [reply])


def test_there_is_a_verdict_for_every_case() -> None:
    matrix = orjson.loads((EDGE / "MATRIX.json").read_bytes())
    assert VERDICTS.keys() == matrix.keys() == {path.stem for path in EDGE.glob("*.bin")}


def test_whatever_any_real_server_acknowledges_we_acknowledge() -> None:
    """What is not in the bytes' framing is never a reason to close, or to stay silent."""
    matrix = orjson.loads((EDGE / "MATRIX.json").read_bytes())
    for name, servers in matrix.items():
        if any(answer.startswith("ACK") for answer in servers.values()):
            assert VERDICTS[name].chunk is not None, name
