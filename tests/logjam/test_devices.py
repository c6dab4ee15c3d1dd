"""The process as the consumer of devices, which are PUB sockets here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import KafkaSettings
from headrace_logjam.wire import Meta, encode_meta

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import HOST, Receiver
from tests.contract.stopping import stopped
from tests.contract.topic import Stored, events
from tests.contract.waiting import until, wait_for
from tests.logjam.driving import event
from tests.logjam.losses import Row, losses
from tests.tiers import sized

pytestmark = pytest.mark.kafka

NUMBER = 7
"""The devices' own."""


class Device:
    """A PUB socket that numbers what it sends, and says it to nobody if nobody is there."""

    def __init__(self, context: zmq.asyncio.Context, hwm: int = 100_000, curve: bytes | None = None) -> None:
        """`curve`: the secret key with which it speaks CURVE."""
        self._curve = curve
        self._context = context
        self._hwm = hwm
        self.mark = uuid.uuid4().hex
        self.sequence = 0
        self.clock = 1_700_000_000_000
        self.address = f"tcp://{HOST}:{free_port()}"  # nobody else is given it while the device is stopped
        self.start()

    def start(self) -> None:
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.XPUB_VERBOSER, 1)  # it hears of every consumer that comes or goes
        self._here = 0
        self._socket.setsockopt(zmq.SNDHWM, self._hwm)
        self._socket.setsockopt(zmq.LINGER, 0)
        if self._curve is not None:
            self._socket.setsockopt(zmq.CURVE_SERVER, 1)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, self._curve)
        wait_for(self._bound, "the address is free again")
        self.sequence = 0

    def _bound(self) -> bool:
        """A socket that was closed gives its address back a little later."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.bind(self.address)
            return True
        return False

    def stop(self) -> None:
        self._socket.close()

    async def joined(self, subscriptions: int = 1) -> None:
        """Waits until so many are there."""
        await self._heard()
        while self._here < subscriptions:
            await self.comes()

    async def comes(self) -> bool:
        """Whether the next that is heard of a consumer is that it comes, not that it goes."""
        comes = (await asyncio.wait_for(self._socket.recv(), 60))[:1] == b"\1"
        self._here += 1 if comes else -1
        return comes

    async def _heard(self) -> None:
        while await self._socket.poll(0):
            await self.comes()

    async def send(self, count: int = 1, size: int = 0, **more: Any) -> None:
        for _ in range(count):
            self.sequence += 1
            self.clock += 1
            body = {"mark": self.mark, "n": self.sequence, "text": "x" * size, **more}
            meta: dict[str, Any] = {"device": NUMBER, "sequence": self.sequence, "created_ms": self.clock}
            await self._socket.send_multipart(event(body, **meta))

    async def beat(self) -> None:
        self.sequence += 1
        meta = encode_meta(Meta(0, NUMBER, self.clock, self.sequence))
        await self._socket.send_multipart([b"heartbeat", self.address.encode(), b"{}", meta])


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in range(9))


def consumer(topics: KafkaSettings, folder: Path, devices: dict[str, Device], **more: Any) -> Receiver:
    folder.mkdir()
    addresses = json.dumps({name: device.address for name, device in devices.items()})
    section = {"pull_port": 0, "endpoints": addresses, "consumer": "us", **more.pop("logjam", {})}
    return Receiver("logjam", topics, folder, {"logjam": section, **more})


def rows(records: list[Stored]) -> list[Row]:
    """What the lake keeps of them."""
    return [(record.id, json.dumps(record.attributes), record.timestamp) for record in records]


def lost(records: list[Stored]) -> list[tuple[int, int]]:
    """Ranges of numbers that the query calls lost."""
    return [(start, end) for _, start, end in losses(rows(records))]


def stored(records: list[Stored], made: int = 0) -> set[int]:
    """The numbers that are there, of messages that were made after this."""
    own = [record.attributes for record in records]
    return {about["sequence"] for about in own if about["created"] > made}


async def reaches(topics: KafkaSettings, last: int, made: int = 0) -> list[Stored]:
    """When the last number is there, and all in front of it are, or are called lost."""

    async def there() -> list[Stored] | None:
        records = await events(topics)
        numbers = stored(records, made)
        gone = {number for start, end in lost(records) for number in range(start, end)}
        first = 1 if made else min(numbers, default=1)
        return records if last in numbers and set(range(first, last + 1)) <= numbers | gone else None

    return await until(there, f"number {last} is there")


OUTAGE = sized(2, 6, 20)
"""Seconds that Kafka stands still; its deadline is a quarter of that."""

FLOOD = sized(9_000, 30_000, 30_000)
"""Messages of 2,000 bytes. Kernels keep 10 MB of them on their way."""


async def test_numbers_say_what_devices_dropped_while_kafka_stood(
    topics: KafkaSettings, folders: Iterator[Path], kafka: EmbeddedKafka, context: zmq.asyncio.Context
) -> None:
    """Neither the budget nor KAFKA__ACK_DEADLINE loses anything that is not said, nor do short starts of the device."""
    device, mib = Device(context, hwm=500), 1 << 20
    sizes = {"event_bytes": 65_536, "frame_bytes": 65_536, "inflated_bytes": mib}
    with consumer(
        topics,
        next(folders),
        {"one": device},
        logjam={"endpoint_messages": 500},
        kafka={"ack_deadline": OUTAGE / 4},
        limits={**sizes, "connection_budget": 2 * mib, "process_budget": 8 * mib},
    ) as receiver:
        await receiver.start()
        await device.joined()
        await device.send(10, 2000)
        await until(lambda: receiver.metric("events_stored_total"), "they come")
        with stopped(kafka.pid):
            for _ in range(10):
                await device.send(FLOOD // 10, 2000)
                await asyncio.sleep(OUTAGE / 10)
        seen = -1
        while seen < FLOOD:  # until it hears the device again
            await device.beat()
            await asyncio.sleep(0.2)
            seen = max(stored(await events(topics)), default=0)
        records = await reaches(topics, device.sequence)
        assert await receiver.metric("frames_abandoned_total") == 0
        gone = lost(records)
        assert gone
        numbers = sum(end - start for start, end in gone)
        await receiver.shows(numbers, "logjam_lost_messages_total", endpoint="one")
        for _ in range(2):
            before = device.clock
            device.stop()
            device.start()
            await device.send(3)  # nobody has joined again
            await device.joined()
            await device.send(4)
            records = await reaches(topics, 7, made=before)
            assert stored(records, made=before) == {4, 5, 6, 7}
        assert sorted(lost(records)) == sorted([*gone, (1, 4), (1, 4)])


async def test_a_device_that_speaks_curve(
    topics: KafkaSettings, folders: Iterator[Path], context: zmq.asyncio.Context
) -> None:
    public, secret = zmq.curve_keypair()
    device = Device(context, curve=secret)
    keys = {"curve_devices": json.dumps({"one": public.decode()})}
    with consumer(topics, next(folders), {"one": device}, logjam=keys) as receiver:
        await receiver.start()
        await device.joined()
        await device.send(20)
        assert {record.attributes["consumer"] for record in await reaches(topics, 20)} == {"us"}
