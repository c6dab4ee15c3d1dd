"""A device loses messages, and the rules are evaluated over what the consumer says then."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq.asyncio
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver
from tests.contract.waiting import until
from tests.logjam.test_devices import Device, complete, consumer
from tests.scrapes import Page, firing

pytestmark = [pytest.mark.kafka, pytest.mark.requires("promtool"), pytest.mark.long]

LOST = 7


async def page(receiver: Receiver) -> Page:
    status, text = await receiver.get("/metrics")
    assert status == 200
    return Page(text)


async def test_the_first_loss_of_a_process_is_told(
    topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    device = Device(context)
    with consumer(topics, tmp_path / "consumer", {"one": device}) as receiver:
        await receiver.start()
        await device.joined()
        await device.send(5)
        await complete(topics, 5)
        before = await page(receiver)
        device.skip(LOST)
        await device.send()

        async def told() -> bool:
            return await receiver.metric("logjam_lost_messages_total", endpoint="one") == LOST

        await until(told, f"{LOST} are lost")
        after = await page(receiver)
    groups = ["headrace-receivers", "headrace-logjam"]
    assert firing(groups, "logjam", [before, before], tmp_path) == set()
    assert firing(groups, "logjam", [before, after], tmp_path) == {"HeadraceLogjamLoses"}
