"""A service turns writers away, and the rules are evaluated over what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import Receiver
from tests.scrapes import Page, firing
from tests.segment.client import Client, ClosedError, Services, new_writer
from tests.segment.speaking import setup

pytestmark = [pytest.mark.kafka, pytest.mark.requires("promtool"), pytest.mark.long]


async def page(service: Receiver) -> Page:
    status, text = await service.get("/metrics")
    assert status == 200
    return Page(text)


async def test_a_writer_for_whom_there_is_no_room(own_segments: KafkaSettings, start: Services, tmp_path: Path) -> None:
    service = await start(own_segments, segment={"writers": 1})
    async with await Client.connect(service.address) as client, await Client.connect(service.address) as other:
        await client.setup("a", new_writer())
        before = await page(service)
        other.say(setup("a", new_writer()))
        with pytest.raises(ClosedError):
            await other.reply()
    after = await page(service)
    assert firing(["headrace-segments"], "segment", [before, before], tmp_path) == set()
    assert firing(["headrace-segments"], "segment", [before, after], tmp_path) == {"HeadraceSegmentLimit"}
