"""Payload entries to events."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.session.interface import Peer
from headrace_courier.wire import jdat

from tests.courier.driving import NONCE, Outcome, drive, every_way

HEX = NONCE.hex()


def one(event: bytes, **limits: Any) -> Outcome:
    return drive([jdat(NONCE, [event])], **limits)


@pytest.mark.parametrize(
    "event",
    [
        b"{}",
        b' {"a" : 1.0, "b":1e0,"a":2}\n',
        '{"m":"ünï 日本 🚀"}'.encode(),
        b'{"m":"\\ud83d\\ude80\\u0000","n":1e999,"deep":[[[[]]]]}',
        b'{"n":' + b"9" * 400 + b"}",
        b'{"host":1e999,"type":{"a":1},"path":[1]}',
    ],
)
def test_json_goes_through_unchanged(event: bytes) -> None:
    outcome = every_way(jdat(NONCE, [event, event]))
    assert [seen.value for seen in outcome.events] == [event, event]
    assert outcome.acknowledged == [(NONCE, 2)]


@pytest.mark.parametrize(
    ("event", "value", "places"),
    [
        (b'{"a":"\xff"}', '{"a":"ÿ"}', {"/a": b"\xff"}),
        (b'{"host":"h\x80"}', '{"host":"h€"}', {"/host": b"h\x80"}),
        (b'{"host":1e999,"a":"\x90\\n"}', '{"host":1e999,"a":"\ufffd\\n"}', {"/a": b"\x90\\n"}),
        (b'{"\xc3":1}', '{"Ã":1}', {"~key0": b"\xc3"}),
    ],
)
def test_windows_1252_is_read_as_such(event: bytes, value: str, places: dict[str, bytes]) -> None:
    found, _ = every_way(jdat(NONCE, [event, b"{}"])).events
    assert found.value == value.encode()
    assert found.attributes["invalid_utf8"] == {place: b64encode(raw).decode() for place, raw in places.items()}
    assert found.attributes["nonce"] == NONCE.hex()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (b"", Reason.BAD_JSON),
        (b"plain text", Reason.BAD_JSON),
        (b'{"a":1', Reason.BAD_JSON),
        (b'{"a":1}}', Reason.BAD_JSON),
        (b'{"a":01}', Reason.BAD_JSON),
        (b'{"a":NaN}', Reason.BAD_JSON),
        (b"\xef\xbb\xbf{}", Reason.BAD_JSON),
        (b'{"a":\xff}', Reason.BAD_JSON),
        (b'{"a":"\xff"', Reason.BAD_JSON),
        (b'{"a":"\xff","b":[\xff]}', Reason.BAD_JSON),
        (b'{"a":"\x01"}', Reason.BAD_JSON),
        (b"[]", Reason.BAD_RECORD),
        (b"null", Reason.BAD_RECORD),
        (b'"text"', Reason.BAD_RECORD),
        (b"5", Reason.BAD_RECORD),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", Reason.TOO_DEEP),
        (b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", Reason.TOO_DEEP),
    ],
)
def test_what_is_no_event_is_kept_byte_for_byte_and_acknowledged(event: bytes, reason: Reason) -> None:
    good = b'{"n":1}'
    outcome = drive([jdat(NONCE, [good, event, good])])
    assert outcome.error is None
    (reject,) = outcome.rejects
    assert (reject.reason, reject.raw) == (reason, event)
    assert reject.detail
    assert reject.attributes == f'{{"nonce":"{HEX}","index":1}}'.encode()
    assert [seen.value for seen in outcome.events] == [good, good]
    assert outcome.acknowledged == [(NONCE, 3)]


def test_depth_from_both_sides() -> None:
    deep = b'{"a":' * 63 + b'"[[[[[{{{{"' + b"}" * 63
    assert one(deep).events
    assert one(b'{"a":' + deep + b"}", depth=64).events
    assert one(b'{"a":' + deep + b"}", depth=63).rejects[0].reason is Reason.TOO_DEEP


def test_an_event_of_the_largest_size_and_one_byte_more() -> None:
    def sized(size: int) -> bytes:
        return b'{"m":"' + b"x" * (size - 8) + b'"}'

    outcome = every_way(jdat(NONCE, [sized(2000), sized(2001)]), event_bytes=2000)
    assert [len(seen.value) for seen in outcome.events] == [2000]
    assert [(reject.reason, len(reject.raw)) for reject in outcome.rejects] == [(Reason.OVERSIZED, 2001)]
    assert outcome.acknowledged == [(NONCE, 2)]


def test_the_time_of_an_event() -> None:
    (event,) = one(b'{"@timestamp":"2026-11-21T11:59:34.076+02:00"}').events
    assert event.time == "2026-11-21T09:59:34.076Z"
    assert event.attributes == {"nonce": HEX}


@pytest.mark.parametrize(
    "event", [b"{}", b'{"@timestamp":null}', b'{"@timestamp":1763719174}', b'{"@timestamp":"yesterday"}']
)
def test_an_event_without_a_time_has_that_of_its_receipt(event: bytes) -> None:
    (found,) = one(event).events
    assert found.time == "2023-11-14T22:15:23.456Z"
    assert found.attributes == {"nonce": HEX, "time": "received"}
    assert found.value == event


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (b'{"type":"nginx","path":"/var/log/a"}', "nginx"),
        (b'{"path":"/var/log/a"}', "/var/log/a"),
        (b'{"type":"","path":"/var/log/a"}', "/var/log/a"),
        (b'{"type":5,"path":"/var/log/a"}', "/var/log/a"),
        (b'{"type":["a"]}', "-"),
        ('{"path":"/var/log/ü"}'.encode(), "/var/log/ü"),
        (b"{}", "-"),
        (b'{"type":"' + b"t" * 1024 + b'"}', "t" * 1024),
        (b'{"type":"' + b"t" * 1025 + b'"}', "-"),
    ],
)
def test_the_stream_of_an_event(event: bytes, subject: str) -> None:
    (found,) = one(event).events
    assert found.headers["ce_subject"].decode() == subject


def test_the_source_is_the_certificate_else_the_host_else_the_address() -> None:
    events = [b'{"host":"web 1"}', b"{}", b'{"host":""}', b'{"host":{"name":"x"}}', b'{"host":"web 1"}']
    data = jdat(NONCE, events)
    plain = [seen.headers["ce_source"].decode() for seen in drive([data]).events]
    assert plain == [
        "/courier/web%201",
        "/courier/192.0.2.7",
        "/courier/192.0.2.7",
        "/courier/192.0.2.7",
        "/courier/web%201",
    ]
    certified = drive([data], peer=Peer("192.0.2.7", 1, "agent.example")).events
    assert {seen.headers["ce_source"] for seen in certified} == {b"/courier/agent.example"}


def test_very_many_streams_on_one_connection() -> None:
    events = [f'{{"path":"/var/log/{n}"}}'.encode() for n in range(3000)]
    outcome = drive([jdat(NONCE, events)])
    assert [seen.headers["ce_subject"].decode() for seen in outcome.events] == [f"/var/log/{n}" for n in range(3000)]
