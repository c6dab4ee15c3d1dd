"""Clients that send all the time: while their socket ends and another takes its place, and while Kafka stores slowly."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from typing import Any

import pytest
import zmq
from headrace_cli.machine.ports import free_port
from headrace_common.connection import messages
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Frame
from headrace_logjam import sockets
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers.access import AccessControl, Admission
from headrace_logjam.peers.doors import Doors
from headrace_logjam.settings import LogjamSection, LogjamSettings
from headrace_logjam.sockets import AHEAD, ProducerSocket, SharedState

from tests.common.kafkaless import FakePublisher, receiver_state, until
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.logjam.driving import event

CLIENTS = 24
MESSAGES, BODY = 100, 4096
BEFORE, AFTER = 50, 10
"""Messages of each client before the socket ends, and after another has taken its place, at least."""


class Storing(FakePublisher):
    """Kafka, which stores all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        requests = [received.request for received in frame.messages]  # type: ignore[attr-defined]
        self.stored += [request.frames[2] for request in requests]
        asyncio.get_running_loop().call_later(0.002, listener.stored, frame.ticket, len(requests), True)


class Crowd(threading.Thread):
    """Clients that send numbers until they are told to stop, each with a pause of a few milliseconds."""

    def __init__(self, kind: int, port: int, asks: bool) -> None:
        super().__init__()
        self._context = zmq.Context()
        self._asks = asks
        self.sent: list[bytes] = []
        self.stop = threading.Event()
        self._sockets = [self._context.socket(kind) for _ in range(CLIENTS)]
        for client in self._sockets:
            client.connect(f"tcp://{HOST}:{port}")

    def run(self) -> None:
        for number in itertools.count():
            for name, client in enumerate(self._sockets):
                body = b'{"n":"%d.%d"}' % (name, number)
                client.send_multipart([b""] * self._asks + event(body))
                self.sent.append(body)
            if self.stop.wait(0.005):
                return

    def destroy(self) -> None:
        self._context.destroy(linger=0)


class Service:
    """As much of the receiver as a socket of producers needs."""

    def __init__(self, port: int = 0, *, answers: bool) -> None:
        settings = LogjamSettings.model_validate({"listen": {"host": HOST}, "logjam": {}})
        self.publisher = Storing()
        self.receiver = receiver = receiver_state(self.publisher, settings.limits)
        own = LogjamMetrics(receiver.metrics)
        self.tasks = Tasks(lambda: None)
        runtime = Runtime(settings, receiver, receiver.metrics, receiver.log, self.tasks, list)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.access = AccessControl(self.context, Admission((), {}), own, receiver.limited)
        self.doors = Doors(self.context, self.receiver, own, settings.logjam.peer_messages)
        around = SharedState(runtime, own, self.context, self.doors, self.access, None)
        self.socket = ProducerSocket(around, port, None, answers=answers)

    async def start(self) -> int:
        address = await self.socket.bind()
        self.access.open()
        self.socket.start()
        return int(address.rpartition(":")[2])

    async def stop(self) -> None:
        self.tasks.stopping()
        await self.socket.close()
        await self.receiver.drain(60)
        self.socket.end()
        self.doors.close()
        self.access.close()
        await self.tasks.stop()
        await asyncio.to_thread(self.context.term)


@pytest.mark.parametrize(
    ("answers", "speaks", "asks"),
    [(False, zmq.PUSH, False), (True, zmq.DEALER, False), (True, zmq.DEALER, True)],
    ids=["pull", "dealers that do not ask", "dealers that ask"],
)
async def test_what_a_crowd_has_handed_over_is_stored_though_the_service_stops(
    answers: bool, speaks: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogjamSection, "peer_messages", 1000)  # much is read ahead
    monkeypatch.setattr(sockets, "LAST_READING", 0.2)
    monkeypatch.setattr(sockets, "LEAVING", 60.0)
    port = free_port()  # nobody else takes it between the two
    first = Service(port, answers=answers)
    await first.start()
    crowd = Crowd(speaks, port, asks)
    crowd.start()
    second: Any = None
    try:
        await until(lambda: len(first.publisher.stored) >= CLIENTS * BEFORE)
        await first.stop()
        second = Service(port, answers=answers)
        await second.start()
        await until(lambda: len(second.publisher.stored) >= CLIENTS * AFTER)
        crowd.stop.set()
        await asyncio.to_thread(crowd.join)
        both = first.publisher.stored, second.publisher.stored
        await until(lambda: sum(map(len, both)) >= len(crowd.sent))
        assert sorted([*both[0], *both[1]]) == sorted(crowd.sent)
    finally:
        crowd.stop.set()
        crowd.join()
        if second is not None:
            await second.stop()
        crowd.destroy()


@pytest.mark.parametrize("answers", [False, True])
async def test_a_client_that_does_not_leave_is_not_waited_for(answers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks no ZeroMQ, or its machine is gone."""
    monkeypatch.setattr(sockets, "QUIET", 0.0)
    monkeypatch.setattr(sockets, "LEAVING", 0.3)
    service = Service(answers=answers)
    with socket.create_connection((HOST, await service.start())) as client:
        client.setblocking(False)
        said = b""
        async with asyncio.timeout(PATIENCE):
            while not said:  # it has been accepted
                said = await asyncio.get_running_loop().sock_recv(client, 64)
            await service.stop()


# What one socket of producers reads before Kafka has stored it, however much its clients send


class Slow(Storing):
    """Kafka, which has stored something and now stores when `goes_on` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Frame, DeliveryListener]] = []
        self.most = 0

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        if not self.stored:
            super().publish(frame, listener)
            return  # it has stored something: it is not away
        self.stored += [received.request.frames[2] for received in frame.messages]  # type: ignore[attr-defined]
        self.waiting.append((frame, listener))
        self.most = max(self.most, sum(each.size for each, _ in self.waiting))

    def goes_on(self) -> int:
        """Stores a frame, if one waits. Returns how many messages have come."""
        if self.waiting:
            frame, listener = self.waiting.pop(0)
            listener.stored(frame.ticket, len(frame.messages), True)  # type: ignore[attr-defined]
        return len(self.stored)


def speak(client: zmq.Socket[bytes], port: int, name: int, count: int) -> None:
    client.connect(f"tcp://{HOST}:{port}")
    for number in range(count):
        client.send_multipart(event(b'{"n":"%d.%d","x":"%s"}' % (name, number, b"x" * BODY)))


@pytest.mark.parametrize(("answers", "speaks"), [(False, zmq.PUSH), (True, zmq.DEALER)], ids=["pull", "router"])
async def test_a_crowd_waits_in_zeromq_and_nothing_is_lost(
    answers: bool, speaks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is first come, first served; ZeroMQ takes its clients in turn."""
    monkeypatch.setattr(messages, "STALL", 3600.0)
    service = Service(answers=answers)
    service.publisher = publisher = Slow()
    service.receiver.publisher = publisher  # type: ignore[assignment]
    port = await service.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    clients = [context.socket(speaks) for _ in range(CLIENTS + 1)]
    try:
        await asyncio.to_thread(speak, clients[CLIENTS], port, CLIENTS, 1)
        await until(lambda: publisher.stored and not service.receiver.budget.pending)
        crowd = [threading.Thread(target=speak, args=(clients[name], port, name, MESSAGES)) for name in range(CLIENTS)]
        for each in crowd:
            each.start()
        assert service.socket._opened is not None
        connection = service.socket._opened[-1]
        await until(lambda: connection._ahead)
        assert not service.socket._read.reading
        await until(lambda: publisher.goes_on() > CLIENTS * MESSAGES)
        assert len(set(publisher.stored)) == CLIENTS * MESSAGES + 1
        assert AHEAD <= publisher.most < 3 * AHEAD  # what was read, and is not a frame yet, is not counted
        for each in crowd:
            await asyncio.to_thread(each.join)
        while publisher.waiting:
            publisher.goes_on()
    finally:
        context.destroy(linger=0)
        await service.stop()
