"""HTTP/1.1: which requests are heard, how they are answered, and where a conversation ends."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from headrace_common.record.contract import Reason
from headrace_common.session.inflate import zstd
from headrace_otlp.logs import JSON, PROTOBUF
from headrace_otlp.wire import HEAD_BYTES, request

from tests.driving import feed, traced
from tests.otlp.driving import body, chunked, drive, every_way, raw, record, sent, session

POST = "POST /v1/logs HTTP/1.1\nHost: a\nContent-Type: application/x-protobuf"


def test_requests_are_answered_in_order_on_one_connection() -> None:
    outcome = every_way(sent(record("a")) + raw("GET /nowhere HTTP/1.1\nHost: a") + sent(record("b"), record("c")))
    assert outcome.statuses == [200, 404, 200]
    assert [event.json["body"] for event in outcome.events] == ["a", "b", "c"]
    assert not outcome.over


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_body_in_chunks_is_like_one_with_length(size: int) -> None:
    content = body(record("a"), record("b"))
    outcome = every_way(chunked(content, size) + sent(record("c")))
    assert outcome.statuses == [200, 200]
    assert outcome.parts[0] == drive([request(content, PROTOBUF)]).parts[0]


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("zstd", zstd.compress), ("deflate", zlib.compress), ("identity", bytes)],
)
def test_a_compressed_body_is_the_same_as_a_plain_one(coding: str, pack: Callable[[bytes], bytes]) -> None:
    content = body(record("a" * 1000))
    packed = pack(content)
    assert every_way(request(packed, PROTOBUF, coding)).parts == drive([request(content, PROTOBUF)]).parts
    assert drive([request(pack(b"{}"), JSON, coding)]).statuses == [200]


@pytest.mark.parametrize(
    ("data", "status", "line"),
    [
        (raw("GET /v1/logs HTTP/1.1\nHost: a"), 405, "Allow: POST"),
        (raw("CONNECT a:1 HTTP/1.1\nHost: a"), 404, ""),
        (raw(f"{POST.replace('logs', 'traces')}\nContent-Length: 2", b"ab"), 404, ""),
        (raw("POST /v1/logs HTTP/1.1\nHost: a\nContent-Type: text/plain\nContent-Length: 2", b"ab"), 415, ""),
        (raw(f"{POST}\nContent-Encoding: br\nContent-Length: 2", b"ab"), 415, "Accept-Encoding: gzip, zstd, deflate"),
        (raw(f"{POST}\nContent-Length: 0"), 200, ""),
    ],
)  # fmt: skip
def test_a_connection_goes_on_behind_what_brings_no_records(data: bytes, status: int, line: str) -> None:
    outcome = every_way(data + sent(record()))
    assert outcome.statuses == [status, 200]
    assert not line or line in outcome.answers[0].lines
    assert len(outcome.events) == 1


def test_a_head_is_answered_without_a_body() -> None:
    answer = drive([raw("HEAD /v1/logs HTTP/1.1\nHost: a")]).said
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00", 400),
        (b"not HTTP\r\n\r\n", 400),
        (raw(f"{POST}\nContent-Length: 3\nTransfer-Encoding: chunked", b"0\r\n\r\n"), 400),
        (raw(f"{POST}\nTransfer-Encoding: chunked\nContent-Length: 3", b"0\r\n\r\n"), 400),
        (raw(f"{POST}\nContent-Length: 3\nContent-Length: 4", b"abcd"), 400),
        (raw(f"{POST}\nContent-Length: +3", b"abc"), 400),
        (raw(f"{POST}\nContent-Length: -1"), 400),
        (raw(f"{POST}\nContent-Length: {'9' * 5000}"), 400),
        (raw(f"{POST}\nContent-Length : 3", b"abc"), 400),
        (raw(f"{POST}\nTransfer-Encoding: gzip, chunked", b"0\r\n\r\n"), 501),
        (raw(f"{POST}\nTransfer-Encoding: xchunked", b"0\r\n\r\n"), 501),
        (raw(f"{POST}\nTransfer-Encoding: chunked".replace("1.1", "1.0"), b"0\r\n\r\n"), 400),
        (raw(f"{POST}\nTransfer-Encoding: chunked", b"x\r\n"), 400),
        (raw(f"{POST}\nTransfer-Encoding: chunked", b"2\r\nabc\r\n"), 400),
        (raw(POST), 411),
    ],
)
def test_where_a_request_ends_is_certain_or_the_conversation_ends(data: bytes, status: int) -> None:
    outcome = every_way(sent(record()) + data + sent(record()), end=False)
    assert outcome.error is not None
    assert outcome.error.offset == len(sent(record()))
    assert outcome.statuses == [200, status]
    assert outcome.answers[1].last
    assert len(outcome.events) == 1


@pytest.mark.parametrize("over", [0, 1])
def test_the_head_of_a_request_is_limited(over: int) -> None:
    content = body(record())
    lines = f"{POST}\nContent-Length: {len(content)}\nX-Pad: "
    pad = HEAD_BYTES - len(raw(lines)) + over
    outcome = every_way(raw(lines + "x" * pad, content), end=False, frame_bytes=1024)
    assert outcome.statuses == [431 if over else 200]


@pytest.mark.parametrize("over", [0, 1])
def test_the_body_of_a_request_is_limited(over: int) -> None:
    content = body(record("x" * 1500))
    data = request(content, PROTOBUF)
    outcome = every_way(data, end=False, frame_bytes=len(content) - over)
    assert outcome.statuses == [413 if over else 200]
    assert over == 0 or outcome.error.limit == "LIMITS__FRAME_BYTES"  # type: ignore[union-attr]


@pytest.mark.parametrize(("over", "missing"), [(0, 0), (1, 0), (2, 1)])
def test_a_body_in_chunks_is_limited_with_what_frames_it(over: int, missing: int) -> None:
    """Before its end comes."""
    data = chunked(body(record("x" * 3000)), 1000)
    size = len(data.partition(b"\r\n\r\n")[2])
    assert every_way(data[: len(data) - missing], end=False, frame_bytes=size - over).statuses == [413 if over else 200]


def test_a_lying_length_waits_and_is_no_request() -> None:
    outcome = drive([raw(f"{POST}\nContent-Length: 100", b"abc")])
    assert outcome.error is not None
    assert not outcome.flat
    assert not outcome.said


def test_nothing_of_a_request_is_kept_behind_it() -> None:
    driven, data = session(), sent(record("x" * 4_000_000))
    with traced():
        feed(driven, data)
        for frame in driven.frames():
            driven.stored(frame.ticket, 1, True)
            del frame
        assert driven.outgoing()
        assert tracemalloc.get_traced_memory()[0] < 200_000


def test_a_request_keeps_nothing_of_the_next() -> None:
    driven, data = session(), sent(record("x" * 2_000_000))
    with traced():
        for at in range(0, 2 * len(data), 900_000):
            feed(driven, (data * 2)[at : at + 900_000])
        assert len(list(driven.frames())) == 2
        assert tracemalloc.get_traced_memory()[0] < 2.2 * len(data)


def test_who_asks_may_send_his_body_when_his_turn_comes() -> None:
    content = body(record())
    data = raw(f"{POST}\nExpect: 100-continue\nContent-Length: {len(content)}", content)
    assert every_way(data).statuses == [100, 200]


@pytest.mark.parametrize("lines", [f"{POST}\nConnection: close", POST.replace("1.1", "1.0")])
def test_a_client_that_says_so_is_answered_and_left(lines: str) -> None:
    content = body(record())
    outcome = every_way(raw(f"{lines}\nContent-Length: {len(content)}", content) + sent(record()))
    assert outcome.statuses == [200]
    assert outcome.answers[0].last
    assert outcome.over


@pytest.mark.parametrize(
    ("content", "coding", "reason"),
    [
        (gzip.compress(bytes(9_000_000), mtime=0), "gzip", Reason.INFLATED_LIMIT),
        (zstd.compress(bytes(9_000_000)), "zstd", Reason.INFLATED_LIMIT),
        (zlib.compress(bytes(9_000_000)), "deflate", Reason.INFLATED_LIMIT),
        (gzip.compress(b"abc", mtime=0)[:-3], "gzip", Reason.COMPRESSION),
        (b"abc", "zstd", Reason.COMPRESSION),
        (b"\x0a\x05abc", "", Reason.BAD_ENCODING),
        (b"\x0b", "", Reason.BAD_ENCODING),
        (b"\x80" * 11, "", Reason.BAD_ENCODING),
    ],
)
def test_a_body_not_understood_is_quarantined_as_it_came(content: bytes, coding: str, reason: Reason) -> None:
    outcome = every_way(request(content, PROTOBUF, coding) + sent(record()), inflated_bytes=8_000_000)
    (reject,) = outcome.rejects
    assert (reject.reason, reject.raw) == (reason, content)
    assert outcome.statuses == [400, 200]
    assert not outcome.answers[0].last


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b'{"resourceLogs":3}', b'{"resourceLogs":[{"scopeLogs":[{"logRecords":{"a":{}}}]}]}'),
        *(b'{"resourceSpans":[{}]}', b'{"resourceLogs":[{"instrumentationLibraryLogs":[{"logRecords":[{}]}]}]}'),
    ],
)
def test_json_that_is_no_request_is_quarantined(content: bytes) -> None:
    outcome = every_way(request(content, JSON))
    assert [reject.raw for reject in outcome.rejects] == [content]
    assert outcome.answers[0].body.startswith(b'{"message":"in quarantine: bad_')
