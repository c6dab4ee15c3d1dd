"""What one socket of producers reads before Kafka has stored it, however much its clients send."""

from __future__ import annotations

import asyncio
import threading

import pytest
import zmq
from headrace_common.connection import messages
from headrace_common.publishing.in_flight import DeliveryListener
from headrace_common.session.interface import Frame
from headrace_logjam.sockets import AHEAD, ProducerSocket, PullSocket, RouterSocket

from tests.common.kafkaless import until
from tests.contract.receiver import HOST
from tests.logjam.driving import event
from tests.logjam.test_leaving import Service, Storing

CLIENTS, MESSAGES, BODY = 16, 100, 4096


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


@pytest.mark.parametrize(
    ("kind", "speaks"), [(PullSocket, zmq.PUSH), (RouterSocket, zmq.DEALER)], ids=["pull", "router"]
)
async def test_a_crowd_waits_in_zeromq_and_nothing_is_lost(
    kind: type[ProducerSocket], speaks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is first come, first served; ZeroMQ takes its clients in turn."""
    monkeypatch.setattr(messages, "STALL", 3600.0)
    service = Service(kind, 0)
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
