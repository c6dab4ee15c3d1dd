"""Clients that send while their socket ends."""

from __future__ import annotations

import asyncio

import pytest
import zmq
import zmq.asyncio
from headrace_common.operations.tasks import Tasks
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.service.parts import Runtime
from headrace_common.session.interface import Frame
from headrace_logjam import sockets
from headrace_logjam.access import Access
from headrace_logjam.metrics import LogjamMetrics
from headrace_logjam.peers import Doors
from headrace_logjam.settings import LogjamSettings
from headrace_logjam.sockets import ProducerSocket, SharedState

from tests.common.kafkaless import FakePublisher, receiver_state, until
from tests.contract.receiver import HOST
from tests.contract.waiting import PATIENCE
from tests.logjam.driving import event
from tests.logjam.test_service import ACCEPTED, connected, heard

CLIENTS = 24
MESSAGES = 100


class Storing(FakePublisher):
    """Kafka, which stores all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []

    def publish(self, frame: Frame, listener: DeliveryListener) -> None:
        requests = frame.items  # type: ignore[attr-defined]
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
