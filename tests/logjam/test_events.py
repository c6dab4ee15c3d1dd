"""What a message becomes where `tests/fuzz/truth` does not tell it, and in which steps."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.record.steps import finish
from headrace_common.session.inflate import LAST_WINDOW
from headrace_logjam.devices.subscription import SubscriptionMaker
from headrace_logjam.wire import BodyCompression, BodyLimits, read_published, split

from tests.driving import BARREN_ZLIB, NOW_MS
from tests.logjam.driving import ADDRESS, META, asking, drive, driven, event


def rejected(frames: list[bytes], **limits: Any) -> tuple[Reject, bytes]:
    found = drive(asking(frames), **limits)
    (part,) = found.flat
    assert isinstance(part, Reject)
    ((_, _, answer),) = found.replies
    assert split(part.raw) == frames
    return part, answer


def test_what_a_device_publishes_in_windows_1252_is_read_as_such() -> None:
    maker = SubscriptionMaker("east", "c", BodyLimits(1000, 1000, 64))
    bodies = (b'{"a":"\xe9"}', b"{}", b'{"a":\xe9}')
    mended, plain, bad = [finish(maker.make(read_published(event(body), "east"), NOW_MS)) for body in bodies]
    assert isinstance(mended, bytes)
    assert isinstance(plain, bytes)
    value, headers = decode(mended)
    assert value == '{"a":"é"}'.encode()
    attributes = json.loads(dict(headers)["ce_attributes"])
    assert attributes.pop("notes") == ["invalid_utf8"]
    assert b64decode(attributes.pop("raw")) == b'{"a":"\xe9"}'
    assert attributes == json.loads(dict(decode(plain)[1])["ce_attributes"])
    assert isinstance(bad, Reject)
    assert bad.reason is Reason.BAD_JSON


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"\xff" * 5000, b"\0", b"{}", META], Reason.BAD_MESSAGE),
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


def test_a_body_that_gives_nothing_is_inflated_in_steps() -> None:
    """16 MiB of blocks without output held the event loop for more than five seconds."""
    frames = [*event(b"")[:2], BARREN_ZLIB, event(b"", BodyCompression.ZLIB)[3]]
    found = driven()
    found.send(asking(frames))
    maker = SubscriptionMaker("east", "c", BodyLimits(1000, 1000, 64))
    (frame,) = found.turn()
    *pauses, reject = frame.parts()
    assert len(pauses) >= len(BARREN_ZLIB) // LAST_WINDOW
    assert isinstance(reject, Reject)
    assert reject.reason is Reason.BAD_JSON
    assert len([*maker.make(read_published(frames, "east"), NOW_MS)]) == len(pauses)


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
