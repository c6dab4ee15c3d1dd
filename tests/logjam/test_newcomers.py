"""Clients that are there are read, however many come beside them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from dataclasses import dataclass
from math import inf

import pytest
from headrace_common.connection import messages
from headrace_logjam import sockets
from headrace_logjam.peers.newcomers import AT_ONCE, MESSAGES, PART, Newcomers, Question

from tests.common.kafkaless import until
from tests.contract.logjam import GREETING, READY, message
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.logjam.driving import asking, event
from tests.logjam.test_leaving import Service, Slow
from tests.logjam.test_peers import Client

CROWD, CONNECTIONS, ROUNDS = 128, 4000, 8
ANSWER = message([b"", b"202 Accepted"])
LARGE = message(asking(event(b'{"x":"%s"}' % (b"x" * 97_000))))


class Asking:
    """A socket's newcomers. `gone`: those who have left."""

    def __init__(self) -> None:
        self.admitted: list[bytes] = []
        self.gone: set[bytes] = set()
        self.newcomers = Newcomers(self._admit)
        self._round = itertools.cycle([0])

    def _admit(self, question: Question) -> bool:
        (name,) = question
        if name in self.gone:
            return False
        self.admitted.append(name)
        return True

    def come(self, *names: bytes) -> list[bytes]:
        """Returns who has been admitted since the last call."""
        for name in names:
            self.newcomers.ask([name])
        admitted, self.admitted = self.admitted, []
        return admitted

    def turn(self, connections: int, again: int = 1) -> int:
        """Reads a turn. No place is left of those that have ended, and the next newcomer waits for a part of the next turn.
        Returns its length in messages.
        """
        self._round = itertools.cycle([*range(connections)] * again)
        self.read(2 * again * connections)
        came = len(self.come(*names(1000)))
        for _ in range(came + 1):
            self.newcomers.ended()
        while not self.come():
            self.read(1)
        return connections

    def read(self, messages: int) -> None:
        """Reads on."""
        self.newcomers.read([*itertools.islice(self._round, messages)])


def names(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_all_come_where_everything_was_read() -> None:
    asking = Asking()
    assert asking.come(*names(1000)) == names(1000)
    asking.newcomers.read([0])
    assert asking.come(*names(1000)) == names(AT_ONCE)
    asking.newcomers.admit_all()
    assert len(asking.come()) == 1000 - AT_ONCE


def test_one_comes_for_some_messages_that_were_read() -> None:
    asking = Asking()
    asking.newcomers.read([0])
    assert asking.come(*names(AT_ONCE + 3)) == names(AT_ONCE)
    for number in range(AT_ONCE, AT_ONCE + 3):
        asking.newcomers.read([0] * (MESSAGES - 1))
        assert asking.come() == []
        asking.newcomers.read([1])
        assert asking.come() == [b"%d" % number]


@pytest.mark.parametrize("again", [1, 2], ids=["each number once", "numbers of connections that are still read"])
def test_one_comes_for_a_part_of_a_turn(again: int) -> None:
    asking = Asking()
    turn = asking.turn(connections=40 * MESSAGES // again, again=again)
    asking.read(turn // PART - 1)
    assert asking.come() == []
    asking.read(1)
    assert len(asking.come()) == 1


def test_one_comes_in_the_place_of_one_that_has_ended() -> None:
    asking = Asking()
    asking.turn(connections=40 * MESSAGES)
    for _ in range(3):
        asking.newcomers.ended()
        asking.read(MESSAGES - 1)
        assert asking.come() == []
        asking.read(1)
        assert len(asking.come()) == 1
        asking.read(2 * MESSAGES)
        assert asking.come() == []  # none has ended, and no part of a turn has passed
        asking.newcomers.ended()
        assert len(asking.come()) == 1


def test_who_came_before_one_had_ended_takes_its_place() -> None:
    asking = Asking()
    turn = asking.turn(connections=40 * MESSAGES)
    asking.read(turn // PART)
    assert len(asking.come()) == 1
    asking.newcomers.ended()
    asking.read(MESSAGES)
    assert asking.come() == []
    asking.newcomers.ended()
    assert len(asking.come()) == 1


def test_who_has_left_takes_nobodys_place() -> None:
    asking = Asking()
    asking.newcomers.read([0])
    asking.come(*names(AT_ONCE + 3))
    asking.gone = {b"%d" % AT_ONCE, b"%d" % (AT_ONCE + 1)}
    asking.newcomers.read([0] * MESSAGES)
    assert asking.come() == [b"%d" % (AT_ONCE + 2)]


def test_nobody_waits_for_a_socket_that_is_not_read() -> None:
    asking = Asking()
    asking.newcomers.read([0])
    asking.come(*names(AT_ONCE + 3))
    assert asking.newcomers.pause()  # something was read before
    assert asking.come() == []
    assert not asking.newcomers.pause()
    assert len(asking.come()) == 3


@dataclass(eq=False)
class Pipe:
    """A connection in libzmq. `left`: its messages that have arrived. It ends for libzmq when at most `MESSAGES` are left of a
    client that has gone.
    """

    number: int
    left: int
    gone_at: float = inf
    ended: bool = False


class FairQueue:
    """libzmq's `fq.cpp`, and clients with `batch` messages each, which leave `patience` messages after their first was read, and
    ask again at once.
    """

    def __init__(self, clients: int, batch: int, patience: int) -> None:
        self.asking = Asking()
        self.read = 0
        self._batch, self._patience = batch, patience
        self._numbers = itertools.count(1)
        self._pipes: list[Pipe] = []  # the active ones first
        self._active = self._current = 0
        self.honest = Pipe(0, 0)
        self._pipes.append(self.honest)
        for _ in range(clients):
            self._admit()

    def speak(self) -> None:
        """The honest client, of which nothing was left, sends a message."""
        self.honest.left = 1
        if (at := self._pipes.index(self.honest)) >= self._active:
            self._swap(at, self._active)
            self._active += 1

    def step(self) -> None:
        """Reads a message, if there is one. Clients leave, and come."""
        self.read += 1
        pipe = self._next()
        if pipe is None:
            self.asking.newcomers.admit_all()
        else:
            pipe.left -= 1
            self._current = (self._current + 1) % self._active
            if pipe is not self.honest:
                pipe.gone_at = min(pipe.gone_at, self.read + self._patience)
            self.asking.newcomers.read([pipe.number])
        for each in self._pipes[:]:
            if each.gone_at == self.read:
                self.asking.newcomers.ask([b"again"])
            if not each.ended and each.gone_at <= self.read and each.left <= MESSAGES:
                each.ended = True
                self.asking.newcomers.ended()
            if each.ended and not each.left:
                self._forget(each)
        for _ in self.asking.come():
            self._admit()

    def _admit(self) -> None:
        self._pipes.append(Pipe(next(self._numbers), self._batch))
        self._swap(len(self._pipes) - 1, self._active)
        self._active += 1

    def _next(self) -> Pipe | None:
        while self._active:
            if (pipe := self._pipes[self._current]).left:
                return pipe
            self._active -= 1
            self._swap(self._current, self._active)
            self._current = 0 if self._current == self._active else self._current
        return None

    def _forget(self, pipe: Pipe) -> None:
        at = self._pipes.index(pipe)
        if at < self._active:
            self._active -= 1
            self._swap(at, self._active)
            at = self._active
            self._current = 0 if self._current == self._active else self._current
        self._swap(at, len(self._pipes) - 1)
        self._pipes.pop()

    def _swap(self, one: int, other: int) -> None:
        pipes = self._pipes
        pipes[one], pipes[other] = pipes[other], pipes[one]


@pytest.mark.parametrize("batch", [1, 4, 40, 120])
def test_the_turn_does_not_grow(batch: int) -> None:
    """Who has gone stays in it with what had arrived: it grew to seven times the crowd."""
    clients = 100
    queue = FairQueue(clients, batch, patience=150)
    waits: list[int] = []
    while len(waits) < 200:
        began = queue.read
        queue.speak()
        while queue.honest.left:
            queue.step()
        waits.append(queue.read - began)
        for _ in range(97):
            queue.step()
    assert max(waits) <= max(2 * clients, PART * batch + clients)


class Crowd:
    """Clients with a message each, which come again on another connection once they are answered."""

    def __init__(self, port: int) -> None:
        self.left = CONNECTIONS
        self._port = port
        self._threads = [threading.Thread(target=self._one) for _ in range(CROWD)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self.left = 0
        for thread in self._threads:
            thread.join()

    def _one(self) -> None:
        while self.left > 0:
            self.left -= 1
            with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), PATIENCE) as client:
                client.sendall(GREETING + READY)
                shaken = bytearray()
                while len(shaken) < len(GREETING) + len(READY):
                    shaken += client.recv(100) or b"?" * 100
                client.sendall(LARGE)
                client.recv(100)


async def test_a_client_is_read_beside_others_that_come_with_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """libzmq reads a new connection first: as long as one came for each message, four clients waited."""
    monkeypatch.setattr(sockets, "AHEAD", 1)
    monkeypatch.setattr(messages, "STALL", 3600.0)
    service = Service(answers=True)
    service.publisher = publisher = Slow()
    service.receiver.publisher = publisher  # type: ignore[assignment]
    port = await service.start()

    async def storing() -> None:
        while True:
            await asyncio.sleep(0)
            if publisher.waiting:
                time.sleep(0.005)  # noqa: ASYNC251  (the loop is busy, and clients come meanwhile)
                publisher.goes_on()

    stores, crowd = asyncio.create_task(storing()), Crowd(port)
    honest = await (await Client.come(port, GREETING + READY)).met()
    try:
        crowd.start()
        async with asyncio.timeout(PATIENCE):
            for number in range(ROUNDS):
                silent_until = len(publisher.stored) + 2 * CROWD  # its turn has come, and it had nothing to say
                await until(lambda since=silent_until: len(publisher.stored) >= since or not crowd.left)
                said = len(publisher.stored)
                await honest.say(message(asking(event(b'{"n":%d}' % number))))
                await honest.reader.readexactly(len(ANSWER))
                assert len(publisher.stored) - said <= 2 * (CROWD + AT_ONCE)
        assert crowd.left > 0
    finally:
        await asyncio.to_thread(crowd.join)
        honest.writer.close()
        await service.stop()
        stores.cancel()
