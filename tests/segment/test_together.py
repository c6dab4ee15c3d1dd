"""Small blocks of a writer that has much under way: they are held, and then go together."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.session.interface import AT_ONCE
from headrace_segment import questions as ask
from headrace_segment.session.limits import AHEAD, LITTLE, TOGETHER
from headrace_segment.wire import messages as said
from headrace_segment.wire.original import DataAppended

from tests.driving import NOW_MS, Seen, parts_of
from tests.segment import speaking
from tests.segment.instant import InstantStore, Slow, read_replies
from tests.segment.recorded import W1, W2
from tests.segment.speaking import events
from tests.segment.speaking_today import REQUEST, append, append_bytes, seal, setup
from tests.segment.test_today_session import appended, begun, created

MORE = 3
"""Blocks behind those that are under way."""


def busy(size: int = 1) -> tuple[InstantStore, Slow]:
    """A writer with as many blocks under way as may be; the next one's number is `AHEAD` + 1."""
    store, slow = begun()
    slow.hear(*(append(number, bytes(size)) for number in range(1, AHEAD + 1)))
    assert len(slow.frames) == AHEAD
    return store, slow


def data_of(frame: Any) -> list[bytes]:
    return [part.value for part in parts_of(frame) if isinstance(part, Seen)]


def test_blocks_that_are_held_are_one_frame_one_record_and_one_acknowledgement() -> None:
    store, slow = busy()
    numbers = range(AHEAD + 1, AHEAD + 1 + MORE)
    slow.hear(*(append(number, b"%d" % number, request=number) for number in numbers))
    assert len(slow.frames) == AHEAD
    slow.store()
    assert len(slow.frames) == AHEAD - 1  # its bytes are not stored yet
    slow.answer()
    assert data_of(slow.frames[-1]) == [b"%d" % number for number in numbers]
    for _ in range(AHEAD):
        slow.store()
    assert [(question.before, question.after, question.events) for question in slow.questions] == [
        *((number - 1, number, 1) for number in range(2, AHEAD + 1)),
        (AHEAD, AHEAD + MORE, MORE),
    ]
    for _ in range(AHEAD):
        answer = slow.answer()
    assert read_replies(answer, said.MESSAGES) == [
        appended(AHEAD + MORE, AHEAD, 9 * (AHEAD + MORE), request=AHEAD + MORE)
    ]
    assert slow.session.status().idle
    assert store.content("a").endswith(events(*(b"%d" % number for number in numbers)))


def test_their_events_are_what_they_are_alone() -> None:
    """Ids, levels and times; also where numbers skip, and where nothing names an event."""
    blocks: list[tuple[Any, ...]] = [(3, b"x", b"x"), (9, b"x", b"y"), (10, b"x", b"x"), (11, b"x")]
    _, slow = busy()
    _, talk = created()
    talk.hear(setup())
    for number in range(1, AHEAD + 1):
        talk.hear(append(number, b"\0"))
    for number, (level, *data) in enumerate(blocks):
        block = append(AHEAD + level, *data)
        slow.session.receive(block, NOW_MS + number)
        talk.hear(block)
    slow.store()
    slow.answer()
    frame = slow.frames[-1]
    parts: Any = parts_of(frame)
    alone = talk.outcome.events[AHEAD:]
    same = [[(part.id[:2], part.attributes["level"], part.value) for part in each] for each in (parts, alone)]
    assert same[0] == same[1]
    named = [[part.id for part in each if part.id.startswith("d.")] for each in (parts, alone)]
    assert named[0] == named[1]
    assert len({part.id for part in parts}) == 7
    assert [int(part.time[-4:-1]) - NOW_MS % 1000 for part in parts] == [0, 0, 1, 1, 2, 2, 3]
    assert frame.received_ms == NOW_MS + 3


@pytest.mark.parametrize("large", [append(99, bytes(LITTLE)), append_bytes(99, b"x", count=(1 << 31) - 1)])
def test_a_large_block_goes_at_once_and_so_does_what_is_before_it(large: bytes) -> None:
    _, slow = busy()
    slow.hear(append(AHEAD + 1, b"x"), large)
    assert sum(len(parts_of(frame)) for frame in slow.frames) == AHEAD + 2
    slow.hear(append(100, b"y"))
    assert len(slow.frames) == AHEAD + 1
    while slow.frames or slow.questions:
        slow.store() if slow.frames else slow.answer()
    assert slow.session.status().idle


def test_so_much_goes_together() -> None:
    _, slow = busy()
    size, first = LITTLE // 4, AHEAD + 1
    numbers = iter(range(first, first + 2 * TOGETHER // size))
    while len(slow.frames) == AHEAD:
        slow.hear(append(number := next(numbers), bytes(size)))
    frame = slow.frames[-1]
    assert frame.size <= TOGETHER < frame.size + LITTLE // 2
    assert not frame.small
    assert len(parts_of(frame)) == number - first  # the last one waits for the next ones


@pytest.mark.parametrize(("events", "small"), [(AT_ONCE // 2, True), (AT_ONCE // 2 + 1, False)])
def test_they_are_built_in_one_call_if_one_block_of_them_would_be(events: int, small: bool) -> None:
    _, slow = busy()
    slow.hear(*(append(AHEAD + number * events, *[b""] * events) for number in (1, 2)))
    slow.store()
    slow.answer()
    assert slow.frames[-1].small is small


def test_tiny_blocks_are_counted_with_what_each_costs() -> None:
    _, slow = busy()
    count = TOGETHER // 100
    slow.hear(*(append(number, b"") for number in range(AHEAD + 1, AHEAD + 1 + count)))
    assert slow.frames[-1].size <= TOGETHER
    assert len(slow.frames) > AHEAD + 1


def test_what_is_held_waits_in_the_budgets() -> None:
    _, slow = busy()
    before = slow.session.status().waiting_bytes
    slow.hear(append(AHEAD + 1, bytes(1000)), append(AHEAD + 2, bytes(1000)))
    assert slow.session.status().waiting_bytes >= before + 2000
    assert not slow.session.status().idle
    slow.store()
    slow.answer()
    assert slow.session.status().waiting_bytes == before
    assert slow.frames[-1].size > 2000


def test_what_comes_behind_it_waits_for_it() -> None:
    store, slow = busy()
    slow.hear(append(AHEAD + 1, b"x"), append(AHEAD + 2, b"y"), seal(), append(AHEAD + 3, b"z"))
    for _ in range(AHEAD):
        slow.store()
        slow.answer()
    assert [data_of(frame) for frame in slow.frames] == [[b"x", b"y"]]
    assert not slow.questions
    slow.store()
    slow.answer()
    assert [type(question) for question in slow.questions] == [ask.ChangeSegment]
    assert store.content("a").endswith(events(b"x", b"y"))


def test_a_second_setup_waits_for_it() -> None:
    _, slow = busy()
    slow.hear(append(AHEAD + 1, b"x"), setup())
    for _ in range(AHEAD + 1):
        slow.store()
        slow.answer()
    assert [type(question) for question in slow.questions] == [ask.OpenSession]
    assert read_replies(slow.answer(), said.MESSAGES) == [said.AppendSetup(REQUEST, "a", W1, AHEAD + 1)]


def test_others_do_not_wait() -> None:
    _, slow = busy()
    slow.hear(setup(writer=W2))
    slow.answer()
    slow.hear(append(AHEAD + 1, b"x"), append(1, b"other", writer=W2))
    assert [data_of(frame) for frame in slow.frames][-1] == [b"other"]
    assert len(slow.frames) == AHEAD + 1


def test_a_fault_behind_it_is_found_at_once_and_what_was_complete_is_stored() -> None:
    _, talk = created()
    blocks = b"".join(append(number, b"%d" % number) for number in range(1, AHEAD + 3))
    talk.hear(setup(), blocks + append(1, b"again"))
    assert "does not rise" in str(talk.outcome.error)
    assert len(talk.outcome.events) == AHEAD + 2


def test_in_the_original_dialect() -> None:
    slow = Slow()
    slow.hear(speaking.setup())
    slow.answer()
    data = [b"%d" % number for number in range(AHEAD + MORE)]
    slow.hear(*(speaking.block(9 * number, events(each)) for number, each in enumerate(data)))
    assert len(slow.frames) == AHEAD
    slow.store()
    slow.answer()
    assert data_of(slow.frames[-1]) == data[AHEAD:]
    for _ in range(AHEAD):
        slow.store()
        replies = slow.answer()
    assert replies == speaking.say(DataAppended(W1, 9 * len(data)))
    assert slow.driven.store.content("a") == events(*data)
