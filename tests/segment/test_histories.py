"""Histories of two processes that own the segments in turn: killed, stopped, or frozen for a while, as a writer appends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receivers
from tests.contract.waiting import until
from tests.segment.client import Client, ClosedError, new_writer
from tests.segment.speaking import events as framed

pytestmark = [pytest.mark.kafka, pytest.mark.full]

SIZE = len(framed(bytes(9)))


@pytest.mark.parametrize("seed", range(30))
async def test_what_is_acknowledged_is_in_the_segment_once_and_in_order(
    seed: int, own_segments: KafkaSettings, start: Receivers
) -> None:
    chance, name, now = random.Random(seed), new_writer(), asyncio.get_running_loop().time
    running = [await start(own_segments), await start(own_segments)]
    sent = acknowledged = 0

    async def writes() -> None:
        nonlocal sent, acknowledged
        while True:
            with contextlib.suppress(ClosedError, OSError, TimeoutError):
                service = chance.choice(running)
                async with asyncio.timeout(3) as patience, await Client.connect(service.address) as client:
                    level = await client.setup("a", name)
                    assert acknowledged <= level <= sent
                    while True:
                        sent = max(sent, level + SIZE)
                        level = await client.append(level, framed(b"%09d" % (level // SIZE)), name)
                        acknowledged = max(acknowledged, level)
                        await asyncio.sleep(0.01)  # the machine is for the processes
                        patience.reschedule(now() + 3)
            await asyncio.sleep(0.05)

    writing = asyncio.create_task(writes())
    for _ in range(6):
        await asyncio.sleep(chance.uniform(0.2, 3))
        victim, fault = chance.choice(running), chance.choice(["killed", "stopped", "frozen"])
        if fault == "frozen":  # for up to so long that another one takes over
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(chance.uniform(1, 14))
            victim.signal(signal.SIGCONT)
            continue
        running.remove(victim)
        await asyncio.to_thread(victim.kill if fault == "killed" else victim.stop)
        running.append(await start(own_segments))
    before = acknowledged
    await until(lambda: acknowledged > before or writing.done(), "it writes on")
    writing.cancel()
    await asyncio.wait({writing})
    assert writing.cancelled(), writing.exception()

    async def proven() -> bool:
        with contextlib.suppress(ClosedError, OSError):
            async with await Client.connect(chance.choice(running).address) as client:
                level = await client.setup("a", name)
                assert before < acknowledged <= level <= sent
                assert await client.content("a") == framed(*(b"%09d" % number for number in range(level // SIZE)))
                return True
        return False

    await until(proven, "one of them serves")
