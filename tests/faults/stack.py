"""What faults happen to: brokers, a proxy in front of each, and five receivers behind these."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq
import zmq.asyncio
from headrace_common.operations.settings import KafkaSettings, TopicSettings

from tests.contract.brokers import Brokers
from tests.contract.receiver import Receiver
from tests.contract.topic import Stored, own_topics, since
from tests.contract.waiting import until
from tests.faults.clients import DIALECTS
from tests.faults.device import Numbers
from tests.logjam.test_devices import Device
from tests.system.proxy import Proxy

QUICKER: Final = {"request_timeout": 5, "ack_deadline": 20}
"""Settings of Kafka, so that what takes minutes by default happens within a round."""

CLOCK: Final = Path(__file__).parent / "clock"


@dataclass
class Stack:
    """All of them."""

    brokers: Brokers
    kafka: KafkaSettings
    """As a reader reaches it, past the proxies."""
    proxies: dict[int, Proxy]
    receivers: dict[str, Receiver]
    clocks: dict[str, Path]
    numbers: Numbers
    """Of a device to which the Logjam receiver is subscribed."""
    read: dict[str, dict[int, int]] = field(default_factory=dict)
    events: list[Stored] = field(default_factory=list)

    @classmethod
    async def start(cls, folder: Path, ending: AsyncExitStack, brokers: int = 1) -> Stack:
        """Ends with `ending`."""
        running = await asyncio.to_thread(ending.enter_context, Brokers(folder, brokers))
        proxies = {
            number: await ending.enter_async_context(Proxy(node.listener.behind, node.listener.port))
            for number, node in running.nodes.items()
        }
        partitions = max(dialect.segments for dialect in DIALECTS.values())
        kafka = await asyncio.to_thread(
            own_topics, running.bootstrap, TopicSettings(events_partitions=4, segments_partitions=partitions)
        )
        proxied = kafka.model_copy(update={"bootstrap_servers": running.proxied})
        context = zmq.asyncio.Context()
        ending.callback(context.destroy, linger=0)
        device = Device(context)
        receivers, clocks = {}, {}
        for name, dialect in DIALECTS.items():
            sections: dict[str, dict[str, object]] = {"kafka": dict(QUICKER)}
            if name == "logjam":
                sections[name] = {"endpoints": json.dumps({"one": device.address}), "consumer": "us"}
            receivers[name] = receiver = Receiver.of(dialect, proxied, folder, sections)
            clocks[name] = folder / f"{name}.clock"
            clocks[name].write_text("0")
            receiver.environment = {
                "HEADRACE_TEST_CLOCK": str(clocks[name]),
                "PYTHONPATH": os.pathsep.join(filter(None, (str(CLOCK), *sys.path))),
            }
            ending.callback(receiver.stop)
            receiver.spawn()
        for receiver in receivers.values():
            await receiver.listens()
        stack = cls(running, kafka, proxies, receivers, clocks, Numbers(device))
        await device.joined()
        await device.send()
        await until(stack.told, "the device is heard")
        return stack

    async def told(self) -> bool:
        """Reads on, and returns whether each number of the device is stored, or said to be lost."""
        found = await self._new(self.kafka.events_topic)
        self.numbers.read(found)
        self.events += found
        return not self.numbers.missing

    async def stored(self) -> tuple[list[Stored], list[Stored]]:
        """What the topics of events and of quarantine have got since this was asked last."""
        await self.told()
        found, self.events = self.events, []
        return found, await self._new(self.kafka.quarantine_topic)

    async def _new(self, topic: str) -> list[Stored]:
        found, self.read[topic] = await since(self.kafka, topic, self.read.get(topic, {}))
        return found
