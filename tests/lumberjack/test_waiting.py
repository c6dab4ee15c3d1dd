"""What a client hears while Kafka is slow. Time is given to the session."""

from __future__ import annotations

import itertools

import pytest
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.wire import json_frame, window

from tests.lumberjack.driving import acks, feed, session

START = 5000.0
APART = 5.0
"""Seconds between two signs of life, at most."""


def v2(*sequences: int) -> bytes:
    return b"".join(json_frame(sequence, b'{"n":%d}' % sequence) for sequence in sequences)


class Watch:
    """A session whose timer fires when it asks for it, a little late."""

    def __init__(self) -> None:
        self.session: LumberjackSession = session()
        self.now = START
        self.tickets: list[int] = []
        self.heard: list[tuple[float, int]] = []

    def feed(self, data: bytes) -> None:
        feed(self.session, data)
        self.tickets += [frame.ticket for frame in self.session.frames()]
        self.listen()

    def stored(self, index: int, count: int, *, whole: bool = False) -> None:
        self.session.stored(self.tickets[index], count, whole)
        self.listen()

    def listen(self) -> None:
        self.heard += [(self.now, number) for _, number in acks(self.session.outgoing())]

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            at = self.session.deadline()
            if at is None or at > until:
                break
            self.now = max(at, self.now) + 0.05
            self.session.tick(self.now)
            self.listen()
        self.now = until

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.heard]

    def longest_silence(self, since: float) -> float:
        times = [since, *(at for at, _ in self.heard if at >= since), self.now]
        return max(after - before for before, after in itertools.pairwise(times))


def test_a_waiting_client_hears_something_every_five_seconds() -> None:
    watch = Watch()
    watch.feed(window(2) + v2(1, 2))
    watch.wait(60)
    assert set(watch.numbers) == {0}
    assert watch.longest_silence(START) <= APART
    watch.stored(0, 2, whole=True)
    assert watch.numbers[-1] == 2
    assert watch.session.deadline() is None


def test_the_first_sign_of_life_is_in_time_whenever_the_wait_began() -> None:
    """Also for a window that was pipelined behind another."""
    for moment in range(0, 40, 3):
        watch = Watch()
        watch.feed(window(1) + v2(1))
        watch.wait(moment / 10)
        watch.feed(window(1) + v2(7))
        watch.wait(moment / 10)
        watch.stored(0, 1, whole=True)
        since = watch.now
        watch.wait(30)
        assert watch.longest_silence(since) <= APART
        assert 7 not in watch.numbers


def test_nothing_is_said_while_we_wait_for_the_client() -> None:
    watch = Watch()
    watch.feed(window(3))
    watch.wait(30)
    watch.feed(v2(1))
    watch.feed(v2(2))
    watch.stored(0, 1, whole=True)
    watch.stored(1, 1, whole=True)
    watch.wait(60)
    assert watch.heard == []
    assert watch.session.deadline() is None
    watch.feed(v2(3))
    watch.wait(10)
    assert set(watch.numbers) == {0}
    watch.stored(2, 1, whole=True)
    assert watch.numbers[-1] == 3


@pytest.mark.parametrize("first", [0, 2**32 - 2, 2**32 - 1])
def test_a_keep_alive_is_never_the_number_of_an_event(first: int) -> None:
    """A window in which an event is numbered 0: the client could take a keep-alive for that event's acknowledgement."""
    watch = Watch()
    numbers = [(first + index) % 2**32 for index in range(4)]
    watch.feed(window(4) + v2(*numbers[:1]))
    watch.wait(20)
    watch.feed(v2(*numbers[1:]))
    watch.wait(20)
    assert watch.numbers == []
    watch.stored(0, 1, whole=True)
    watch.wait(20)
    assert watch.numbers == []
    watch.stored(1, 3, whole=True)
    assert watch.numbers[-1] == numbers[-1]


def test_what_was_abandoned_is_waited_for_in_silence() -> None:
    watch = Watch()
    watch.feed(window(1) + v2(1))
    watch.session.abandon(watch.tickets[0])
    watch.wait(20)
    assert watch.heard == []
