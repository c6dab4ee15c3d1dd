"""A device of Logjam, which nobody acknowledges: each of its numbers must be stored, or said to be lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.contract.topic import Stored
from tests.logjam.losses import Row, losses
from tests.logjam.test_devices import Device

PERIOD: Final = 0.05
"""Seconds from one message to the next."""

BEAT: Final = 20
"""Every so many messages there is a heartbeat."""


@dataclass
class Numbers:
    """What a device has published, and what has become of it."""

    device: Device
    stored: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def publish(self, ending: asyncio.Event) -> None:
        """Until `ending`."""
        while not ending.is_set():
            await self.go_on()
            await asyncio.sleep(PERIOD)

    async def go_on(self) -> None:
        """One message."""
        if self.device.sequence % BEAT:
            await self.device.send()
        else:
            await self.device.beat()

    def read(self, records: Iterable[Stored]) -> None:
        """Takes what the events topic has got."""
        for record in records:
            if (number := record.attributes.get("sequence")) and "device" in record.attributes:
                self.stored.add(number)
                self.rows.append((record.id, json.dumps(record.attributes), record.timestamp))
                body = record.json
                if (
                    isinstance(body, dict)
                    and "mark" in body
                    and (body["mark"], body["n"]) != (self.device.mark, number)
                ):
                    self.problems.append(f"logjam: the device has not sent {body} as {number}")

    @property
    def lost(self) -> set[int]:
        """Those that the query calls lost."""
        return {number for _, start, end in losses(self.rows) for number in range(start, end)}

    @property
    def missing(self) -> list[int]:
        """Those that are neither stored nor said to be lost, or both."""
        return sorted(set(range(1, self.device.sequence + 1)) - (self.stored ^ self.lost))
