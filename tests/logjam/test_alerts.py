"""A device loses messages, and the rules are evaluated over what the receiver says then."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq.asyncio
from headrace_common.operations.settings import KafkaSettings

from tests.contract.waiting import until
from tests.logjam.test_devices import Device, complete, consumer
from tests.scrapes import Page, firing

pytestmark = [pytest.mark.kafka, pytest.mark.requires("promtool"), pytest.mark.long]


async def test_what_a_device_has_dropped(topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context) -> None:
    device = Device(context)
    receiver = consumer(topics, tmp_path / "receiver", {"one": device})

    async def page() -> Page:
        status, text = await receiver.get("/metrics")
        assert status == 200
        return Page(text)

    await receiver.start()
    try:
        await device.joined()
        await device.send(3)
        await complete(topics, device.sequence)
        before = await page()
        device.skip(5)
        await device.send()
        await complete(topics, device.sequence)

        async def counted() -> bool:
            return await receiver.metric("logjam_lost_messages_total", endpoint="one") == 5

        await until(counted, "what was dropped is counted")
        after = await page()
    finally:
        receiver.stop()
        device.stop()
    assert firing(["headrace-logjam"], "logjam", [before, before], tmp_path) == set()
    assert firing(["headrace-logjam"], "logjam", [before, after], tmp_path) == {"HeadraceLogjamLoses"}
