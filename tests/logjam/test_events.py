"""What a message becomes, and how it is answered, where `tests/fuzz/truth` does not tell it."""

from __future__ import annotations

import pytest
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_logjam.wire import split

from tests.driving import parts_of
from tests.fuzz.subjects import made
from tests.logjam.driving import ADDRESS, APP_ENV, META, ROUTE, asking, drive, driven, event
from tests.tiers import sized


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


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([b""], b"unknown-unknown"),
        ([b"", b""], b"unknown-unknown"),
        ([b"", b"x" * 5000, b""], b"unknown-unknown"),
        ([b"", b"whatever"], b"whatever"),
        ([b"", *event({})[:3]], APP_ENV),
        ([b"", *event({}), b""], APP_ENV),
    ],
)
def test_whom_a_refusal_names(parts: list[bytes], name: bytes) -> None:
    found = drive(parts)
    assert found.replies == [(ROUTE, name, b"400 Bad Request")]


@pytest.mark.parametrize("answers", [True, False])
def test_messages_are_stored_in_any_order_and_leave_nothing(answers: bool) -> None:
    """The fuzzer's messages; some frames are stored in two steps, some never."""
    for number in range(sized(100, 1000, 10_000)):
        _, messages, chance = made("logjam", f"order-{number}")
        found, lost = driven(answers=answers), False
        frames = found.send(*messages)
        chance.shuffle(frames)
        for frame in frames:
            if chance.random() < 0.1:
                found.session.abandon(frame.ticket)
                lost = True
                continue
            if chance.random() < 0.3:
                found.store(frame, chance.randrange(len(parts_of(frame))))
                found.parts.pop()
            found.store(frame)
        found.hear()
        asked = sum(answers and message[:1] == [b""] for message in messages)
        assert len(found.replies) == asked or (lost and len(found.replies) < asked)
        pings = sum(b"ping" in message[:2] for message in messages)
        assert len(found.flat) + pings >= len(messages) or lost
        assert not vars(found.session)["_questions"]


ACCEPTED = (ROUTE, APP_ENV, b"202 Accepted")
ELSEWHERE = b"cafe-production"


def test_frames_are_by_application_and_keep_their_order() -> None:
    found = driven()
    asks, elsewhere = (asking(event({"n": 0})), asking(event({"n": 3}))), event({}, app_env=ELSEWHERE)
    frames = found.send(asks[0], event({"n": 1}), asking(elsewhere), event({"n": 2}), asks[1], asking([b"broken"]))
    keys = [b"shop-production"] * 2 + [b"cafe-production", b"shop-production", b""]
    assert [frame.ordering_key for frame in frames] == [b"producers/" + key for key in keys]
    assert [frame.acknowledged for frame in frames] == [True, False, True, True, True]
    assert [frame.kept for frame in frames] == [not frame.acknowledged for frame in frames]
    for frame in (frames[0], frames[1], frames[3]):
        found.store(frame)
    assert [part.json["n"] for part in found.flat] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert found.hear() == [ACCEPTED]  # the answer to what was sent elsewhere comes before the next


def test_no_later_answer_is_taken_for_one_that_is_missing() -> None:
    found = driven()
    one, two = found.send(asking(event({})), asking(event({}, app_env=ELSEWHERE)))
    (three,) = found.send(asking(event({})))
    found.session.abandon(one.ticket)
    found.store(three)
    (again,) = found.send(asking(event({})))
    found.session.abandon(two.ticket)
    found.store(again)
    assert found.hear() == []
    (other,) = found.send(asking(event({})), route=b"\0else")
    found.store(other)
    assert found.hear() == [(b"\0else", *ACCEPTED[1:])]


def test_a_client_that_names_its_connection_is_not_answered() -> None:
    """ZeroMQ gives the name, and so the answers, to its next connection."""
    found = driven()
    (frame,) = found.send(asking(event({})), asking([b"ping", b"", b"", META]), route=b"shop-web-1")
    assert frame.kept
    assert not frame.acknowledged
    found.store(frame)
    assert found.hear() == []


def test_questions_that_wait_are_bounded_and_hold_no_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_logjam.session.MOST_QUESTIONS", 3)
    found = driven()
    (first,) = found.send(asking(event({})))
    ping = asking([b"ping", b"", bytes(1 << 20), META])
    assert found.send(ping, ping) == []
    assert [each.frames for each in vars(found.session)["_questions"][ROUTE]][1:] == [(), ()]
    found.send(ping, route=b"\0else")
    found.store(first)
    assert len(found.hear()) == 3
    found.send(ping, route=b"\0else")
    assert found.hear() == []
    found.send(ping)
    assert [reply[0] for reply in found.hear()] == [ROUTE]
