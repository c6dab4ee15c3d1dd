"""Who is answered, what, when, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.session.interface import Frame, KeepUntil

from tests.driving import parts_of
from tests.fuzz.subjects import made
from tests.logjam.driving import APP_ENV, ROUTE, asking, drive, driven, event
from tests.tiers import sized

ACCEPTED = (ROUTE, APP_ENV, b"202 Accepted")
ELSEWHERE = b"cafe-production"


def test_frames_of_one_turn_are_by_application() -> None:
    found = driven()
    found.send(asking(event({})), asking(event({}, app_env=ELSEWHERE)), asking(event({})), asking([b"broken"]))
    mine, other, broken = found.turn()
    assert mine.ordering_key == b"producers/shop-production"
    assert other.ordering_key == b"producers/cafe-production"
    assert broken.ordering_key == b"producers/"
    assert [frame.kept for frame in (mine, other, broken)] == [KeepUntil.DEADLINE] * 3


def test_who_asks_and_who_does_not_keep_their_order_in_frames_of_their_own() -> None:
    found = driven()
    found.send(asking(event({"n": 0})), event({"n": 1}), event({"n": 2}), asking(event({"n": 3})))
    frames = found.turn()
    assert [frame.acknowledged for frame in frames] == [True, False, True]
    assert [frame.kept for frame in frames] == [KeepUntil.DEADLINE, KeepUntil.STORED, KeepUntil.DEADLINE]
    assert len({frame.ordering_key for frame in frames}) == 1
    for frame in frames:
        found.store(frame)
    assert [part.json["n"] for part in found.flat] == [0, 1, 2, 3]  # type: ignore[union-attr]
    assert found.hear() == [ACCEPTED] * 2


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


def stuck(count: int = 1) -> tuple[Any, ...]:
    found = driven()
    found.send(*(asking(event({"n": n})) for n in range(count)))
    (frame,) = found.turn()
    return found, frame


def test_a_route_begins_anew_after_a_late_one() -> None:
    found, first = stuck()
    found.turn(4.5)
    found.send(asking(event({}, app_env=ELSEWHERE)))
    (second,) = found.turn()
    found.turn(1)
    found.store(second)
    assert found.hear() == [(ROUTE, ELSEWHERE, b"202 Accepted")]
    found.store(first)
    assert found.hear() == []


def test_what_is_late_twice_does_not_silence_what_came_after() -> None:
    found = driven()
    found.send(asking(event({})), asking(event({}, app_env=ELSEWHERE)))
    one, two = found.turn()
    found.session.abandon(one.ticket)
    found.send(asking(event({})))
    (again,) = found.turn()
    found.session.abandon(two.ticket)
    found.store(again)
    assert found.hear() == [ACCEPTED]


@pytest.mark.parametrize("count", [3, 4])
def test_what_cannot_be_answered_is_held_until_it_is_stored(count: int) -> None:
    found = driven(answers=False)
    found.send(event({"started_ms": 1})[:count])
    (frame,) = found.turn()
    assert isinstance(frame, Frame)
    assert frame.kept is KeepUntil.STORED
    assert not frame.acknowledged
    assert found.session.deadline() is None
    found.store(frame)
    assert found.hear() == []
    assert found.flat[0].time == "1970-01-01T00:00:00.001Z"  # type: ignore[union-attr]


@pytest.mark.parametrize("answers", [True, False])
def test_whatever_comes_is_stored_in_whatever_order_nothing_is_left_of_it(answers: bool) -> None:
    """The fuzzer's messages; some frames are stored in two steps, some never."""
    for number in range(sized(100, 1000, 10_000)):
        _, messages, chance = made("logjam", f"order-{number}")
        found, lost = driven(answers=answers), False
        found.send(*messages)
        frames = found.turn()
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
        pings = sum(reply[2] == b"200 OK" for reply in found.replies)
        assert len(found.flat) + len(found.ignored) + pings == len(messages) or lost
        assert found.session.status().idle
        found.turn(10)
        assert found.session.deadline() is None
        assert found.session._questions == {}
