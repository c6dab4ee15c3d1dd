"""What clients of Lumberjack and Courier hear while Kafka is slow. Time is given to the session."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession
from headrace_courier.wire import jdat
from headrace_lumberjack.wire import json_frame, window

from tests.courier import driving as courier
from tests.courier.driving import NONCE, content, evnt, numbered, payload
from tests.driving import NOW_MS, feed
from tests.lumberjack import driving as lumberjack

START = 5000.0
APART = 5.0
"""Seconds between two signs of life, at most."""

OTHER = bytes(reversed(NONCE))


def v2(*sequences: int) -> bytes:
    return b"".join(json_frame(sequence, b'{"n":%d}' % sequence) for sequence in sequences)


class Watch:
    """A session whose timer fires when it asks for it, a little late. `heard`: acknowledgements, each with its time."""

    def __init__(self, session: ByteSession, said: Callable[[Any], list[Any]]) -> None:
        self.session, self._said = session, said
        self.now = START
        self.tickets: list[Any] = []
        self.heard: list[tuple[float, Any]] = []

    def feed(self, data: bytes) -> None:
        feed(self.session, data, NOW_MS)
        self.take()

    def take(self) -> None:
        self.tickets += [frame.ticket for frame in self.session.frames()]
        self.listen()

    def stored(self, index: int, count: int, *, whole: bool = True) -> None:
        self.session.stored(self.tickets[index], count, whole)
        self.listen()

    def listen(self) -> None:
        self.heard += [(self.now, answer) for answer in self._said(self.session)]

    def wait(self, seconds: float) -> list[Any]:
        """All that is heard meanwhile."""
        until, before = self.now + seconds, len(self.heard)
        while (at := self.session.deadline()) is not None and at <= until:
            self.now = max(at, self.now) + 0.05
            self.session.tick(self.now)
            self.listen()
        self.now = until
        return [answer for _, answer in self.heard[before:]]

    @property
    def last(self) -> Any:
        return self.heard[-1][1]

    def longest_silence(self, since: float) -> float:
        times = [since, *(at for at, _ in self.heard if at >= since), self.now]
        return max(after - before for before, after in itertools.pairwise(times))


def beats() -> Watch:
    return Watch(lumberjack.session(), lambda session: [number for _, number in lumberjack.acks(session.outgoing())])


def carrier() -> Watch:
    return Watch(courier.session(), courier.said)


WAITING: dict[str, tuple[Callable[[], Watch], bytes, Any, Any]] = {
    "lumberjack": (beats, window(5) + v2(*range(1, 6)), 0, 5),
    "courier": (carrier, jdat(NONCE, numbered(5)), (NONCE, 0), (NONCE, 5)),
}
"""What is sent; what is said while it waits, and when it is stored."""


@pytest.mark.parametrize("protocol", WAITING)
def test_a_waiting_client_hears_something_every_five_seconds(protocol: str) -> None:
    made, data, alive, due = WAITING[protocol]
    watch = made()
    watch.feed(data)
    assert {*watch.wait(60)} == {alive}
    assert watch.longest_silence(START) <= APART
    watch.stored(0, 5)
    assert watch.last == due
    assert watch.session.deadline() is None


@pytest.mark.parametrize("protocol", WAITING)
def test_what_was_abandoned_holds_up_all_behind_it(protocol: str) -> None:
    made, data, alive, _ = WAITING[protocol]
    watch = made()
    watch.feed(data + data)
    watch.session.abandon(watch.tickets[0])
    watch.stored(1, 5)
    assert {*watch.wait(20)} == {alive}


# Lumberjack


def test_the_first_sign_of_life_is_always_in_time() -> None:
    """Also for a window that was pipelined behind another."""
    for moment in range(0, 40, 3):
        watch = beats()
        watch.feed(window(1) + v2(1))
        watch.wait(moment / 10)
        watch.feed(window(1) + v2(7))
        watch.wait(moment / 10)
        watch.stored(0, 1)
        since = watch.now
        assert 7 not in watch.wait(30)
        assert watch.longest_silence(since) <= APART


def test_nothing_is_said_while_we_wait_for_the_client() -> None:
    watch = beats()
    watch.feed(window(3))
    watch.wait(30)
    watch.feed(v2(1))
    watch.feed(v2(2))
    watch.stored(0, 1)
    watch.stored(1, 1)
    watch.wait(60)
    assert watch.heard == []
    assert watch.session.deadline() is None
    watch.feed(v2(3))
    assert {*watch.wait(10)} == {0}
    watch.stored(2, 1)
    assert watch.last == 3


@pytest.mark.parametrize("first", [0, 2**32 - 2, 2**32 - 1])
def test_a_keep_alive_is_never_the_number_of_an_event(first: int) -> None:
    """A window in which an event is numbered 0: the client could take a keep-alive for that event's acknowledgement."""
    watch = beats()
    numbers = [(first + index) % 2**32 for index in range(4)]
    watch.feed(window(4) + v2(*numbers[:1]))
    watch.wait(20)
    watch.feed(v2(*numbers[1:]))
    watch.wait(20)
    watch.stored(0, 1)
    watch.wait(20)
    assert watch.heard == []
    watch.stored(1, 3)
    assert watch.last == numbers[-1]


# Courier


def test_the_oldest_acknowledgement_is_said_again() -> None:
    watch = carrier()
    watch.feed(jdat(NONCE, numbered(5)) + jdat(OTHER, numbered(4)))
    watch.wait(9)
    watch.stored(1, 4)
    watch.stored(0, 3, whole=False)
    assert watch.last == (NONCE, 3)
    assert {*watch.wait(60)} == {(NONCE, 3)}
    assert watch.longest_silence(START) <= APART
    watch.stored(0, 5)
    assert [answer for _, answer in watch.heard[-2:]] == [(NONCE, 5), (OTHER, 4)]
    assert watch.wait(60) == []


@pytest.mark.parametrize("make", [jdat, evnt])
def test_while_a_payload_arrives_its_client_hears_0(make: Callable[..., bytes]) -> None:
    data, watch = make(NONCE, numbered(50)), carrier()
    watch.feed(data[:20])
    assert watch.session.deadline() is None  # its nonce is not complete
    watch.feed(data[20:30])
    assert {*watch.wait(30)} == {(NONCE, 0)}
    assert watch.longest_silence(START) <= APART
    watch.feed(data[30:])
    assert len(watch.tickets) == 1


def test_no_arriving_payload_is_kept_alive_before_an_older() -> None:
    watch = carrier()
    watch.feed(jdat(NONCE, numbered(5)) + jdat(OTHER, numbered(4))[:-3])
    assert {*watch.wait(20)} == {(NONCE, 0)}
    watch.stored(0, 5)
    assert watch.last == (NONCE, 5)
    assert {*watch.wait(20)} == {(OTHER, 0)}


def test_after_a_fault_only_what_is_complete_is_kept_alive() -> None:
    watch = carrier()
    with pytest.raises(ProtocolError):
        watch.feed(jdat(NONCE, numbered(5)) + payload(content(numbered(5)), OTHER, kind=b"EVNT", flip=-1))
    watch.take()
    assert {*watch.wait(20)} == {(NONCE, 0)}
    watch.stored(0, 5)
    assert watch.last == (NONCE, 5)
    assert watch.session.deadline() is None
    with pytest.raises(ProtocolError):
        watch.feed(jdat(NONCE, numbered(5)))
