"""What a message becomes: time, id, stream, and what quarantine keeps."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Envelope, Reject
from headrace_common.session.inflate import LAST_WINDOW
from headrace_common.session.interface import Pause
from headrace_logjam.devices.subscription import SubscriptionFrame, SubscriptionMaker, read_published
from headrace_logjam.events import ENVELOPE_BYTES, ENVELOPES, Envelopes, ProducerFrame
from headrace_logjam.wire import BodyCompression, BodyLimits, split

from tests.driving import BARREN_ZLIB, NOW_MS, Seen, parts_of, without_chance
from tests.logjam.driving import ADDRESS, APP_ENV, META, TOPIC, asking, drive, driven, event

RECEIVED = "2023-11-14T22:15:23.456Z"
MADE = 1_700_000_000_123


def one(frames: list[bytes], **limits: Any) -> Seen:
    (part,) = drive(asking(frames), **limits).flat
    assert isinstance(part, Seen), part
    return part


def rejected(frames: list[bytes], **limits: Any) -> tuple[Reject, bytes]:
    found = drive(asking(frames), **limits)
    (part,) = found.flat
    assert isinstance(part, Reject)
    ((_, _, answer),) = found.replies
    assert split(part.raw) == frames
    return part, answer


@pytest.mark.parametrize("method", list(BodyCompression))
def test_an_event(method: int) -> None:
    body = b'{ "started_ms":1700000000000,"request_id":"1f","text":"\xc3\xbc" }'
    found = one(event(body, method))
    assert found.value == body
    assert found.source == f"/logjam/{ADDRESS}"
    assert found.headers["ce_type"] == b"headrace.logjam.event"
    assert found.subject == "shop-production/logs.shop.production"
    assert found.time == "2023-11-14T22:13:20.000Z"
    assert found.attributes == {}


@pytest.mark.parametrize(
    ("body", "created", "expected"),
    [
        ({"started_ms": MADE, "started_at": "2020-01-01T00:00:00Z"}, 5, "2023-11-14T22:13:20.123Z"),
        ({"started_at": "2020-01-01T00:00:00+01:00"}, MADE, "2019-12-31T23:00:00Z"),
        ({"started_at": "2020-01-01 00:00:00.25"}, MADE, "2020-01-01T00:00:00.25Z"),
        ({"started_at": "2020-01-01T00:00:00"}, MADE, "2020-01-01T00:00:00Z"),
        ({"started_ms": "1", "started_at": "yesterday"}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_ms": True}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_ms": 1.5}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_ms": 10**30}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_ms": 0}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_ms": -1}, MADE, "1969-12-31T23:59:59.999Z"),
        ({"started_ms": 253402300799999}, 0, "9999-12-31T23:59:59.999Z"),
        ({"started_ms": 253402300800000}, MADE, "2023-11-14T22:13:20.123Z"),
        ({"started_at": {"a": 1}}, MADE, "2023-11-14T22:13:20.123Z"),
        ({}, 0, RECEIVED),
        ({}, 2**64 - 1, RECEIVED),
    ],
)
def test_time(body: dict[str, Any], created: int, expected: str) -> None:
    raw = b'{"started_ms":%d}' % 10**30 if body.get("started_ms") == 10**30 else body
    found = one(event(raw, created_ms=created))
    assert found.time == expected
    assert found.attributes == ({"time": "received"} if expected == RECEIVED else {})


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"request_id": "a"}, "d."),
        ({"uuid": "a"}, "d."),
        ({"request_id": "", "uuid": "b"}, "d."),
        ({"request_id": ""}, "u."),
        ({"request_id": None}, "u."),
        ({}, "u."),
        ({"label": "deploy"}, "u."),
    ],
)
def test_an_id_is_known_again_where_the_body_has_one(body: dict[str, Any], kind: str) -> None:
    first, second = (one(event(body, method, created_ms=method, sequence=method)) for method in (0, 3))
    assert first.id[:2] == second.id[:2] == kind
    assert (first.id == second.id) is (kind == "d.")


def test_a_log_line_in_windows_1252_is_read_as_such() -> None:
    """As Logjam's importer does, line by line: the other lines stay UTF-8."""
    body = '{"request_id":"r","lines":[[1,2,"gr?n"],[1,2,"grün"]]}'.encode().replace(b"?", b"\xfc")
    seen = one(event(body))
    assert seen.json["lines"] == [[1, 2, "grün"], [1, 2, "grün"]]
    assert seen.attributes["invalid_utf8"] == {"/lines/0/2": b64encode(b"gr\xfcn").decode()}
    assert seen.id == one(event(body)).id
    assert seen.id != one(event(body.replace(b"\xfc", "ü".encode()))).id
    assert seen.id != one(event(body.replace(b"\xfc", b"\xf6"))).id


def test_what_a_device_publishes_in_windows_1252_is_read_as_such() -> None:
    maker = SubscriptionMaker("east", "c", BodyLimits(1000, 1000, 1000, 64))
    items = [read_published(event(body)) for body in (b'{"a":"\xe9"}', b"{}", b'{"a":\xe9}')]
    parts = [part for part in SubscriptionFrame(items, 0, NOW_MS, 0, maker, b"").parts() if not isinstance(part, Pause)]
    mended, plain, bad = parts
    assert isinstance(mended, bytes)
    assert isinstance(plain, bytes)
    value, headers = decode(mended)
    assert value == '{"a":"é"}'.encode()
    attributes = json.loads(dict(headers)["ce_attributes"])
    assert attributes.pop("invalid_utf8") == {"/a": "6Q=="}
    assert attributes == json.loads(dict(decode(plain)[1])["ce_attributes"])
    assert isinstance(bad, Reject)
    assert bad.reason is Reason.BAD_JSON


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"shop", TOPIC, b"{}", META], Reason.BAD_MESSAGE),
        ([APP_ENV, b"nothing", b"{}", META], Reason.BAD_MESSAGE),
        ([APP_ENV, TOPIC, b"{}", META[:-1]], Reason.BAD_MESSAGE),
        ([APP_ENV, TOPIC, b"{}"], Reason.BAD_MESSAGE),
        ([APP_ENV], Reason.BAD_MESSAGE),
        ([APP_ENV, TOPIC, b"{}", META, b""], Reason.BAD_MESSAGE),
        ([b"\xff" * 5000, b"\0", b"{}", META], Reason.BAD_MESSAGE),
        (event(b"no JSON"), Reason.BAD_JSON),
        (event(b"{} {}"), Reason.BAD_JSON),
        (event(b""), Reason.BAD_JSON),
        (event(b'{"a":\xff}'), Reason.BAD_JSON),
        (event(b"[]"), Reason.BAD_RECORD),
        ([*event({})[:3], event({}, 1)[3]], Reason.COMPRESSION),
        ([*event({})[:3], META[:2] + b"\x09" + META[3:]], Reason.COMPRESSION),
    ],
)
def test_what_can_never_be_an_event_is_kept_and_refused(frames: list[bytes], reason: Reason) -> None:
    reject, answer = rejected(frames)
    assert reject.reason is reason
    assert answer == b"400 Bad Request"
    assert reject.source == f"/logjam/{ADDRESS}"
    assert reject.id.startswith(b"u.")


@pytest.mark.parametrize("method", list(BodyCompression))
@pytest.mark.parametrize(("size", "reason"), [(2001, Reason.OVERSIZED), (5001, Reason.INFLATED_LIMIT)])
def test_what_is_too_large_is_kept_and_accepted(method: int, size: int, reason: Reason) -> None:
    limits = {"event_bytes": 2000, "inflated_bytes": 5000, "frame_bytes": 8192}
    body = b'{"a":"' + b"x" * (size - 8) + b'"}'
    reject, answer = rejected(event(body, method), **limits)
    # How large a zlib stream becomes is not looked at beyond what an event may have.
    assert reject.reason is (Reason.OVERSIZED if method == BodyCompression.ZLIB else reason)
    assert answer == b"202 Accepted"


@pytest.mark.parametrize("method", list(BodyCompression))
def test_the_largest_event_is_one(method: int) -> None:
    body = b'{"a":"' + b"x" * 1992 + b'"}'
    assert one(event(body, method), event_bytes=2000).value == body


def test_what_is_too_deep_is_kept_and_accepted() -> None:
    body = b'{"a":' * 5 + b"1" + b"}" * 5
    reject, answer = rejected(event(body), depth=4)
    assert (reject.reason, answer) == (Reason.TOO_DEEP, b"202 Accepted")
    assert one(event(body), depth=5).value == body


def test_a_body_that_gives_nothing_is_inflated_in_steps() -> None:
    """16 MiB of blocks without output held the event loop for more than five seconds."""
    frames = [*event(b"")[:2], BARREN_ZLIB, event(b"", BodyCompression.ZLIB)[3]]
    found = driven()
    found.send(asking(frames))
    maker = SubscriptionMaker("east", "c", BodyLimits(1000, 1000, 1000, 64))
    for frame in (*found.turn(), SubscriptionFrame([read_published(frames)], 0, NOW_MS, 0, maker, b"")):
        *pauses, reject = frame.parts()
        assert len(pauses) >= len(BARREN_ZLIB) // LAST_WINDOW
        assert isinstance(reject, Reject)
        assert reject.reason is Reason.BAD_JSON


def test_parts_may_be_made_again() -> None:
    found = driven()
    found.send(*(asking(event(body)) for body in (b"{}", b"no", b'{"uuid":"1"}', b"[]")))
    (frame,) = found.turn()
    assert isinstance(frame, ProducerFrame)
    first, second = ([without_chance(part) for part in parts_of(frame)] for _ in range(2))
    assert first == second
    assert frame.refused == {1, 3}


def test_a_frame_that_cannot_be_built_is_kept_whole() -> None:
    sent = [event({"n": n}) for n in range(3)]
    found = driven()
    found.send(*map(asking, sent))
    (frame,) = found.turn()
    reject = frame.spoiled("a bug")
    assert reject.reason is Reason.INTERNAL
    assert [split(each) for each in split(reject.raw)] == sent
    found.session.stored(frame.ticket, 1, True)
    assert [answer for *_, answer in found.hear()] == [b"202 Accepted"] * 3


def test_envelopes_that_are_kept_are_bounded_in_number_and_in_bytes() -> None:
    made = 0

    def make(*_: object) -> Envelope:
        nonlocal made
        made += 1
        return Envelope("logjam", "/logjam/x", "x")

    kept = Envelopes(make)
    for _ in range(2):
        for number in range(ENVELOPES):
            kept.of("here", b"%d" % number, b"t")
    assert made == ENVELOPES
    kept.of("here", b"one more", b"t")
    kept.of("here", b"0", b"t")
    assert made == ENVELOPES + 2
    long, made = ENVELOPE_BYTES // 4 - 4, 0
    kept = Envelopes(make)
    for _ in range(2):
        for letter in b"abcd":
            kept.of("", bytes((letter,)) * long, b"t" * 4)
    assert made == 4
    kept.of("", b"e", b"")
    kept.of("", b"a" * long, b"t" * 4)
    assert made == 6
