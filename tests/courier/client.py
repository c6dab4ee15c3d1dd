"""Courier's client over sockets, as log-courier's: what it sends again has its nonce, and lacks what was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from headrace_common.session.client import Remark
from headrace_courier.client import CourierClient
from headrace_courier.wire import acknowledgement, evnt, jdat

from tests.contract.courier import CourierConversation, CourierDialect
from tests.contract.dialect import ContractClient
from tests.contract.waiting import PATIENCE


@dataclass
class Parcel:
    """A payload as its client keeps it: `events` are those not acknowledged when it was sent last."""

    nonce: bytes
    events: list[bytes]
    form: str
    acknowledged: int = 0

    @property
    def partly(self) -> bool:
        return 0 < self.acknowledged < len(self.events)


class Parcels(CourierClient):
    def make(self, events: list[bytes], form: str) -> tuple[bytes, Parcel]:
        data = self.payload(events, form)
        return data, Parcel(next(reversed(self._keys)), events, form)

    def rest(self, item: Parcel) -> bytes:
        item.events, item.acknowledged = item.events[item.acknowledged :], 0
        self._sizes[self._keys[item.nonce]] = len(item.events)
        return (evnt if item.form == "EVNT" else jdat)(item.nonce, item.events)


@dataclass
class Heard:
    """One ACKN."""

    at: float
    frame: int
    count: int


class Courier(CourierConversation):
    """Goes on over several connections: `pending` are the payloads not acknowledged, `heard` all that was."""

    client: Parcels

    def __init__(self) -> None:
        super(CourierConversation, self).__init__(Parcels())
        self.pending: dict[int, Parcel] = {}
        self.heard: list[Heard] = []
        self.remarks: Counter[str] = Counter()

    def receive(self, data: bytes) -> list[int]:
        whole = []
        for each in self.client.receive(data):
            if isinstance(each, Remark):
                self.remarks[each.text] += 1
                continue
            assert each.frame == next(iter(self.pending), None), "an ACKN out of order, or for what is not pending"
            self.heard.append(Heard(time.monotonic(), each.frame, each.count))
            self.pending[each.frame].acknowledged = each.count
            if each.whole:
                del self.pending[each.frame]
                whole.append(each.frame)
        return whole


class Endpoint(ContractClient):
    """One connection. It looks at each ACKN by itself: who waits for one acts before the next is heard."""

    READ = len(acknowledgement(bytes(16), 0))
    conversation: Courier

    @classmethod
    async def joined(cls, address: tuple[str, int], courier: Courier | None = None) -> Self:
        """Says HELO, waits for VERS, and sends again what is pending."""
        courier = courier or Courier()
        courier.remarks.clear()
        made = await cls.connect(CourierDialect(), address, conversation=courier)
        await made.write(courier.client.greeting())
        assert await made.until(lambda: courier.remarks["VERS"] == 1)
        for item in list(courier.pending.values()):
            await made.write(courier.client.rest(item))
        return made

    async def ships(self, events: list[bytes], form: str = "JDAT") -> Parcel:
        """A payload of its own, which is pending from now on."""
        data, item = self.conversation.client.make(events, form)
        self.conversation.pending[self.conversation.client.made - 1] = item
        await self.write(data)
        return item

    def kill(self) -> None:
        """Cuts the connection without a word. What was not read yet is never read."""
        self._reading.cancel()
        self._writer.transport.abort()

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Waits until `condition` is true or the connection has ended; whether it is true."""
        await self.waits_for(condition, seconds)
        return condition()

    async def all_acknowledged(self) -> None:
        pending = self.conversation.pending
        assert await self.until(lambda: not pending), f"closed with {len(pending)} payloads pending"

    async def _tell(self) -> None:
        await super()._tell()
        await asyncio.sleep(0)
