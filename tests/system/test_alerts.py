"""A receiver is driven into the states that alerts are about, and the rules are evaluated over what it says then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from headrace_common.operations.settings import KIB, KafkaSettings

from tests.contract.dialect import ContractClient, values
from tests.contract.forward import ForwardDialect
from tests.contract.receiver import Receiver, Receivers
from tests.contract.stopping import stopped
from tests.contract.waiting import until
from tests.scrapes import NOBODY, Page, firing
from tests.system.buggy import BUG
from tests.system.conftest import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.requires("promtool"), pytest.mark.long]

LIMITS = {
    "connection_budget": 64 * KIB,
    "process_budget": 128 * KIB,
    "frame_bytes": 32 * KIB,
    "event_bytes": 16 * KIB,
    "inflated_bytes": 32 * KIB,
}


async def page(receiver: Receiver) -> Page:
    return Page((await receiver.get("/metrics"))[1])


def fires(folder: Path, *pages: Page) -> set[str]:
    return firing(["headrace-receivers"], "forward", pages, folder)


async def test_one_that_works_is_silent_its_first_bug_and_its_end_are_told(
    topics: KafkaSettings, tmp_path: Path
) -> None:
    with Receiver("forward", topics, tmp_path, module="tests.system.buggy") as receiver:
        await receiver.start()
        first = await page(receiver)
        async with await ContractClient.connect(ForwardDialect(), receiver.address) as client:
            await client.receives(await client.send(values(1)))
            works = await page(receiver)
            await client.write(BUG)
            await client.sees_end()
        assert fires(tmp_path, first, works) == set()
        assert fires(tmp_path, works, await page(receiver)) == {"HeadraceReceiverBug"}
        receiver.kill()
    gone = {"HeadraceReceiverDown", "HeadraceReceiverGone", "HeadraceReceiversAbsent"}
    assert fires(tmp_path, first, NOBODY) == gone


async def test_a_broker_that_stands_still_and_a_budget_that_is_full(
    broker: Broker, start: Receivers, tmp_path: Path
) -> None:
    receiver = await start(limits=LIMITS)
    async with await ContractClient.connect(ForwardDialect(), receiver.address) as client:
        await client.receives(await client.send(values(1)))
        before = await page(receiver)

        async def send() -> None:
            while True:
                await client.send(values(8, noise="x" * 1024))

        async def paused() -> bool:
            waits = await receiver.metric("oldest_pending_seconds") > 30
            return waits and await receiver.metric("connections_paused") > 0

        with stopped(broker.pid):
            sending = asyncio.create_task(send())
            await until(paused, "nothing is read any more, and a frame has waited for half a minute")
            waiting = await page(receiver)
            sending.cancel()
    found = fires(tmp_path, before, waiting)
    assert found == {"HeadraceReceiverStandsStill", "HeadraceReceiverWaits", "HeadraceConnectionsPaused"}
