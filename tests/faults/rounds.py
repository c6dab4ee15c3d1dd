"""One round: five receivers behind the proxy, clients of each, faults for a while, then peace; then the topics are judged."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace_common.operations.settings import KafkaSettings, TopicSettings

from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect
from tests.contract.forward import ForwardDialect
from tests.contract.logjam import LogjamDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.receiver import Receiver
from tests.contract.segment import SegmentDialect
from tests.contract.stopping import stopped
from tests.contract.topic import events, own_topics, quarantined
from tests.contract.waiting import BROKER_TIME
from tests.faults.clients import Client, finished, violations
from tests.faults.proxy import KafkaProxy
from tests.system.conftest import Broker

DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (ForwardDialect(), LumberjackDialect(), CourierDialect(), LogjamDialect(), SegmentDialect())
}
CLIENTS: Final = 2
"""Of each receiver."""

QUICKER: Final = {"request_timeout": 5, "ack_deadline": 20}
"""Settings of Kafka, so that what takes minutes by default happens within a round."""

PEACE: Final = 120.0
"""Seconds after the last fault within which everything that clients hold must be acknowledged, and one frame more of each."""


@dataclass
class Stack:
    """A broker, a proxy in front of it, and the receivers behind that."""

    broker: Broker
    kafka: KafkaSettings
    proxy: KafkaProxy
    receivers: dict[str, Receiver]

    @classmethod
    async def start(cls, folder: Path, chance: random.Random, stack: AsyncExitStack) -> Stack:
        """Ends with `stack`."""
        broker = Broker(folder / "kafka")
        stack.callback(broker.stop)
        broker.start(BROKER_TIME)
        proxy = await stack.enter_async_context(KafkaProxy(broker.behind, broker.proxied, chance))
        partitions = max(dialect.segments for dialect in DIALECTS.values())
        kafka = own_topics(broker.bootstrap, TopicSettings(events_partitions=4, segments_partitions=partitions))
        proxied = kafka.model_copy(update={"bootstrap_servers": f"127.0.0.1:{broker.proxied}"})
        receivers = {}
        for name, dialect in DIALECTS.items():
            receivers[name] = Receiver.of(dialect, proxied, folder, {"kafka": QUICKER})
            stack.callback(receivers[name].stop)
            receivers[name].spawn()
        for receiver in receivers.values():
            await receiver.listens()
        return cls(broker, kafka, proxy, receivers)

    # What may happen. Each does it for a while, and ends it.

    async def _holding(self, seconds: float, **proxy: Any) -> None:
        for name, value in proxy.items():
            setattr(self.proxy, name, value)
        await asyncio.sleep(seconds)
        self.proxy.quiet()

    async def delayed(self, chance: random.Random) -> None:
        await self._holding(chance.uniform(1, 4), delay=chance.choice((0.1, 1.0)))

    async def swallowed(self, chance: random.Random) -> None:
        await self._holding(chance.uniform(1, 4), swallow=chance.choice((0.2, 1.0)))

    async def rewritten(self, chance: random.Random) -> None:
        codes = tuple(chance.sample(self.proxy.codes, 3))
        await self._holding(chance.uniform(1, 4), rewrite=chance.choice((0.1, 0.5, 1.0)), codes=codes)

    async def half_closed(self, chance: random.Random) -> None:
        await self._holding(chance.uniform(1, 4), deaf=0.3)

    async def cut(self, chance: random.Random) -> None:
        for _ in range(chance.randint(1, 4)):
            self.proxy.cut()
            await asyncio.sleep(chance.uniform(0, 0.5))

    async def broker_frozen(self, chance: random.Random) -> None:
        with stopped(self.broker.pid):
            await asyncio.sleep(chance.uniform(0.5, 7))

    async def broker_killed(self, chance: random.Random) -> None:
        self.broker.kill()
        await asyncio.sleep(chance.uniform(0, 2))
        await asyncio.to_thread(self.broker.start, BROKER_TIME)

    async def receiver_frozen(self, chance: random.Random) -> None:
        receiver = chance.choice(list(self.receivers.values()))
        receiver.signal(signal.SIGSTOP)
        await asyncio.sleep(chance.uniform(0.5, 3))
        receiver.signal(signal.SIGCONT)

    async def receiver_killed(self, chance: random.Random) -> None:
        receiver = chance.choice(list(self.receivers.values()))
        receiver.kill()
        await receiver.start()


Fault = Callable[[Stack, random.Random], Awaitable[None]]
FAULTS: Final[Mapping[str, Fault]] = {
    "delayed": Stack.delayed,
    "swallowed": Stack.swallowed,
    "rewritten": Stack.rewritten,
    "half-closed": Stack.half_closed,
    "cut": Stack.cut,
    "broker frozen": Stack.broker_frozen,
    "broker killed": Stack.broker_killed,
    "receiver frozen": Stack.receiver_frozen,
    "receiver killed": Stack.receiver_killed,
}


async def round_of(stack: Stack, seed: str, seconds: float) -> dict[str, Any]:
    """Runs faults for about `seconds`, one after the other, and judges. `problems` of the result is empty if all is well."""
    chance = random.Random(seed)
    ending = asyncio.Event()
    before = stack.proxy.done.copy()
    clients = [
        Client(dialect, stack.receivers[name], random.Random(f"{seed} {name} {number}"))
        for name, dialect in DIALECTS.items()
        for number in range(CLIENTS)
    ]
    tasks = [asyncio.create_task(client.run(ending)) for client in clients]
    happened = []
    end = time.monotonic() + seconds
    await asyncio.sleep(1)
    while time.monotonic() < end:
        name = chance.choice(list(FAULTS))
        happened.append(name)
        await FAULTS[name](stack, chance)
        await asyncio.sleep(chance.uniform(0, 1))
    ending.set()
    recovery = await finished(tasks, PEACE)
    frames = [frame for client in clients for frame in client.frames]
    problems = [problem for client in clients for problem in client.problems]
    problems += [
        f"{frame.protocol}: {frame.mark} is not acknowledged {PEACE:g} s after the last fault"
        for frame in frames
        if not frame.acknowledged
    ]
    problems += [
        f"{name} has ended" for name, receiver in stack.receivers.items() if receiver.exit_status() is not None
    ]
    stored, rejects = await events(stack.kafka), await quarantined(stack.kafka)
    problems += violations(frames, stored, rejects, dict(DIALECTS))
    marks = {frame.mark for frame in frames}
    return {
        "seed": seed,
        "faults": happened,
        "answers": dict(stack.proxy.done - before),
        "frames": len(frames),
        "events": sum(len(frame.values) for frame in frames),
        "sent_again": sum(frame.attempts - 1 for frame in frames),
        "stored": sum(record.json.get("mark") in marks for record in stored),
        "seconds_until_all_was_acknowledged": round(recovery, 1),
        "problems": sorted(set(problems)),
    }
