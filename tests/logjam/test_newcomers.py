"""Clients that are there are read, however many come beside them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time

import pytest
from headrace_common.connection import messages
from headrace_logjam import sockets
from headrace_logjam.peers.newcomers import AT_ONCE, MESSAGES, Newcomers, Question
from headrace_logjam.sockets import RouterSocket

from tests.common.kafkaless import until
from tests.contract.logjam import GREETING, READY, message
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.logjam.driving import asking, event
from tests.logjam.test_leaving import Service
from tests.logjam.test_peers import Client
from tests.logjam.test_turns import Slow

CROWD, CONNECTIONS, ROUNDS = 128, 4000, 8
ANSWER = message([b"", b"202 Accepted"])
LARGE = message(asking(event(b'{"x":"%s"}' % (b"x" * 97_000))))


class Asking:
    """A socket's newcomers. `gone`: those who have left."""

    def __init__(self) -> None:
        self.admitted: list[bytes] = []
        self.gone: set[bytes] = set()
        self.newcomers = Newcomers(self._admit)

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


def names(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_all_come_where_everything_was_read() -> None:
    asking = Asking()
    assert asking.come(*names(1000)) == names(1000)
    asking.newcomers.read(1)
    assert asking.come(*names(1000)) != names(1000)
    asking.newcomers.read(0)
    assert len(asking.come()) == 1000 - AT_ONCE


def test_one_comes_for_some_messages_that_were_read() -> None:
    asking = Asking()
    asking.newcomers.read(1)
    assert asking.come(*names(AT_ONCE + 3)) == names(AT_ONCE)
    for number in range(AT_ONCE, AT_ONCE + 3):
        asking.newcomers.read(MESSAGES - 1)
        assert asking.come() == []
        asking.newcomers.read(1)
        assert asking.come() == [b"%d" % number]


def test_who_has_left_takes_nobodys_place() -> None:
    asking = Asking()
    asking.newcomers.read(1)
    asking.come(*names(AT_ONCE + 3))
    asking.gone = {b"%d" % AT_ONCE, b"%d" % (AT_ONCE + 1)}
    asking.newcomers.read(MESSAGES)
    assert asking.come() == [b"%d" % (AT_ONCE + 2)]


def test_nobody_waits_for_a_socket_that_is_not_read() -> None:
    asking = Asking()
    asking.newcomers.read(1)
    asking.come(*names(AT_ONCE + 3))
    assert asking.newcomers.pause()  # something was read before
    assert asking.come() == []
    assert not asking.newcomers.pause()
    assert len(asking.come()) == 3


def test_at_the_end_all_hear_something() -> None:
    asking = Asking()
    asking.newcomers.read(1)
    asking.come(*names(AT_ONCE + 3))
    asking.newcomers.admit_all()
    assert len(asking.come()) == 3


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
    service = Service(RouterSocket, 0)
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
