"""What a message becomes where `tests/fuzz/truth` does not tell it, and in which steps."""

from __future__ import annotations

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_logjam.wire import split

from tests.logjam.driving import ADDRESS, META, asking, drive, driven, event


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"\xff" * 5000, b"\0", b"{}", META], Reason.BAD_MESSAGE),
        ([*event({})[:3], event({}, 1)[3]], Reason.COMPRESSION),
        ([*event({})[:3], META[:2] + b"\x09" + META[3:]], Reason.COMPRESSION),
    ],
)
def test_what_can_never_be_an_event_is_kept_and_refused(frames: list[bytes], reason: Reason) -> None:
    found = drive(asking(frames))
    (reject,) = found.flat
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.source, split(reject.raw)) == (reason, f"/logjam/{ADDRESS}", frames)
    assert reject.id.startswith(b"u.")
    assert [answer for *_, answer in found.replies] == [b"400 Bad Request"]


def test_a_frame_that_cannot_be_built_is_kept_whole() -> None:
    sent = [event({"n": n}) for n in range(3)]
    found = driven()
    (frame,) = found.send(*map(asking, sent))
    reject = frame.spoiled("a bug")
    assert reject.reason is Reason.INTERNAL
    assert [split(each) for each in split(reject.raw)] == sent
    found.session.stored(frame.ticket, 1, True)
    assert [answer for *_, answer in found.hear()] == [b"202 Accepted"] * 3
