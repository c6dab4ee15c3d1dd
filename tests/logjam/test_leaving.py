"""Clients that send while their socket ends, and while Kafka stores slowly."""

from __future__ import annotations

import asyncio
import threading

import pytest
import zmq
import zmq.asyncio
from headrace_common.connection import messages
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Frame
from headrace_logjam import sockets
from headrace_logjam.access import Access
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import Doors
from headrace_logjam.settings import LogjamSettings
from headrace_logjam.sockets import AHEAD, ProducerSocket, SharedState

from tests.common.kafkaless import FakePublisher, receiver_state, until
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.logjam.driving import event
from tests.logjam.test_service import ACCEPTED, connected, heard

CLIENTS = 24
MESSAGES, BODY = 100, 4096


class Storing(FakePublisher):
    """Kafka, which stores all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        requests = [received.request for received in frame.messages]  # type: ignore[attr-defined]
        self.stored += [request.frames[2] for request in requests]
        asyncio.get_running_loop().call_later(0.002, listener.stored, frame.ticket, len(requests), True)


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
        self.access = Access(self.context, (), {})
        self.doors = Doors(self.context, self.receiver, own, settings.logjam.peer_messages)
        around = SharedState(runtime, own, self.context, self.doors, self.access, None)
        self.socket = ProducerSocket(around, port, None, answers=answers)

    async def start(self) -> int:
        address = await self.socket.bind()
        self.access.start()
        self.socket.start()
        return int(address.rpartition(":")[2])

    async def stop(self) -> None:
        self.tasks.stopping()
        await self.socket.close()
        await self.receiver.drain(60)
        self.socket.end()
        self.doors.close()
        self.access.stop()
        await self.tasks.stop()
        await asyncio.to_thread(self.context.term)


@pytest.mark.parametrize(
    ("answers", "speaks", "asks"),
    [(False, zmq.PUSH, False), (True, zmq.DEALER, False), (True, zmq.DEALER, True)],
    ids=["pull", "dealers that do not ask", "dealers that ask"],
)
async def test_what_clients_have_handed_over_is_stored_and_answered_though_the_service_stops(
    context: zmq.asyncio.Context, answers: bool, speaks: int, asks: bool
) -> None:
    service = Service(answers=answers)
    port = await service.start()
    clients = [connected(context, speaks, port) for _ in range(CLIENTS)]
    for number in range(MESSAGES):
        for name, client in enumerate(clients):
            await client.send_multipart([b""] * asks + event(b'{"n":"%d.%d"}' % (name, number)))
    await until(lambda: len({body.partition(b".")[0] for body in service.publisher.stored}) == CLIENTS)  # all are there
    stopping = asyncio.create_task(service.stop())
    await asyncio.sleep(0)
    late = connected(context, speaks, port)
    await late.send_multipart([b""] * asks + event(b'{"n":"late"}'))
    for client in clients if asks else ():
        for _ in range(MESSAGES):
            assert await heard(client) == ACCEPTED
    await stopping
    assert len(set(service.publisher.stored)) == len(service.publisher.stored) == CLIENTS * MESSAGES


async def test_a_client_that_goes_on_is_not_waited_for_and_what_it_heard_is_stored(
    context: zmq.asyncio.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LAST_READING", 0.5)
    service = Service(answers=True)
    client = connected(context, zmq.DEALER, await service.start())

    async def talk() -> None:
        while True:
            await client.send_multipart([b"", *event(b"{}")])
            await asyncio.sleep(0.01)

    talking = asyncio.create_task(talk())
    await until(lambda: service.publisher.stored)
    await asyncio.wait_for(service.stop(), PATIENCE)
    talking.cancel()
    answers = 0
    while await client.poll(100):
        assert await heard(client) == ACCEPTED
        answers += 1
    assert 0 < answers <= len(service.publisher.stored)


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
        connection = service.socket._opened
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
