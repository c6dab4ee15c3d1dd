"""Histories of two processes that own the segments in turn, killed, stopped and frozen while a writer appends. Real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver, Receivers
from tests.contract.waiting import until
from tests.segment.client import Client, ClosedError, new_writer
from tests.segment.speaking import events as framed

pytestmark = [pytest.mark.kafka, pytest.mark.full]

FAULTS = 6
FROZEN = 14.0
"""Seconds that a process is frozen at most: another one takes over meanwhile."""

PAUSE = 0.01
"""Seconds between two events: the machine is for the processes."""

WAIT = 3.0
"""Seconds that the writer waits for an answer, before it asks another process."""


def events(first: int, last: int) -> bytes:
    return b"".join(framed(b"%09d" % number) for number in range(first, last))


SIZE = len(events(0, 1))


class Writer:
    """Appends one event after the other, through the process that serves it."""

    def __init__(self) -> None:
        self.name = new_writer()
        self.sent = self.acknowledged = 0

    async def write(self, service: Receiver) -> None:
        """Until the process serves it no more."""
        with contextlib.suppress(ClosedError, OSError, TimeoutError):
            async with asyncio.timeout(WAIT):
                client = await Client.connect(service.address)
                level = await client.setup("a", self.name)
            assert self.acknowledged <= level <= self.sent
            try:
                while True:
                    number = level // SIZE
                    self.sent = max(self.sent, level + SIZE)
                    async with asyncio.timeout(WAIT):
                        level = await client.append(level, events(number, number + 1), self.name)
                    assert level == (number + 1) * SIZE
                    self.acknowledged = max(self.acknowledged, level)
                    await asyncio.sleep(PAUSE)
            finally:
                client.cut()


@pytest.mark.parametrize("seed", range(30))
async def test_what_is_acknowledged_is_in_the_segment_once_and_in_order(
    seed: int, own_segments: KafkaSettings, start: Receivers
) -> None:
    chance, writer = random.Random(seed), Writer()
    running = [await start(own_segments), await start(own_segments)]

    async def writes() -> None:
        while True:
            await writer.write(chance.choice(running))
            await asyncio.sleep(0.05)

    writing = asyncio.create_task(writes())
    for _ in range(FAULTS):
        await asyncio.sleep(chance.uniform(0.2, 3))
        victim, fault = chance.choice(running), chance.choice(["killed", "stopped", "frozen"])
        if fault == "frozen":
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(1, FROZEN))
            victim.signal(signal.SIGCONT)
            continue
        running.remove(victim)
        await asyncio.to_thread(victim.kill if fault == "killed" else victim.stop)
        running.append(await start(own_segments))
    before = writer.acknowledged
    await until(lambda: writer.acknowledged > before or writing.done(), "it writes on")
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    while True:
        with contextlib.suppress(ClosedError, OSError):
            async with await Client.connect(chance.choice(running).address) as client:
                level = await client.setup("a", writer.name)
                assert await client.content("a") == events(0, level // SIZE)
                break
        await asyncio.sleep(0.1)
    assert before < writer.acknowledged <= level <= writer.sent
