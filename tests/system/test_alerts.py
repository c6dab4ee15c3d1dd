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

GROUPS = ["headrace-receivers"]


async def page(receiver: Receiver) -> Page:
    status, text = await receiver.get("/metrics")
    assert status == 200
    return Page(text)


def fires(folder: Path, *pages: Page) -> set[str]:
    return firing(GROUPS, "forward", pages, folder)


async def client(receiver: Receiver) -> ContractClient:
    return await ContractClient.connect(ForwardDialect(), receiver.address)


async def works(receiver: Receiver) -> Page:
    """A page after an event was stored."""
    async with await client(receiver) as sender:
        await sender.receives(await sender.send(values(1)))
    return await page(receiver)


async def test_one_that_works_is_silent_and_one_that_is_gone_is_named(start: Receivers, tmp_path: Path) -> None:
    receiver = await start()
    first = await page(receiver)
    assert fires(tmp_path, first, await works(receiver)) == set()
    receiver.kill()
    gone = {"HeadraceReceiverDown", "HeadraceReceiverGone", "HeadraceReceiversAbsent"}
    assert fires(tmp_path, first, NOBODY) == gone


async def test_a_broker_that_stands_still_and_a_budget_that_is_full(
    broker: Broker, start: Receivers, tmp_path: Path
) -> None:
    limits = {
        "connection_budget": 64 * KIB,
        "process_budget": 128 * KIB,
        "frame_bytes": 32 * KIB,
        "event_bytes": 16 * KIB,
    }
    receiver = await start(limits={**limits, "inflated_bytes": 32 * KIB})
    before = await works(receiver)
    async with await client(receiver) as sender:
        with stopped(broker.pid):

            async def send() -> None:
                while True:
                    await sender.send(values(8, noise="x" * 1024))

            sending = asyncio.create_task(send())

            async def paused() -> bool:
                return (
                    await receiver.metric("connections_paused") > 0
                    and await receiver.metric("oldest_pending_seconds") > 30
                )

            await until(paused, "nothing is read any more, and a frame has waited for half a minute")
            waiting = await page(receiver)
            sending.cancel()
    found = fires(tmp_path, before, waiting)
    assert found == {"HeadraceReceiverStandsStill", "HeadraceReceiverWaits", "HeadraceConnectionsPaused"}


async def test_the_first_bug_of_a_process(topics: KafkaSettings, tmp_path: Path) -> None:
    with Receiver("forward", topics, tmp_path, module="tests.system.buggy") as receiver:
        await receiver.start()
        before = await works(receiver)
        async with await client(receiver) as sender:
            await sender.write(BUG)
            await sender.sees_end()
        assert fires(tmp_path, before, await page(receiver)) == {"HeadraceReceiverBug"}
