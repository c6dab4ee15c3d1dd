"""Clients that send a frame again until it is acknowledged, and what the topics must hold then."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.contract.courier import CourierDialect
from tests.contract.dialect import ContractClient, Dialect, values
from tests.contract.forward import ForwardDialect
from tests.contract.logjam import LogjamDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.receiver import Receiver
from tests.contract.segment import SegmentDialect
from tests.contract.topic import Stored

DIALECTS: Final[Mapping[str, Dialect]] = {
    each.name: each
    for each in (ForwardDialect(), LumberjackDialect(), CourierDialect(), LogjamDialect(), SegmentDialect())
}

ATTEMPT: Final = 20.0
"""Seconds after which a client takes a connection for dead, and sends again on another."""

PAUSE: Final = 0.2


@dataclass
class Frame:
    """What a client has sent. `faulty`: with an event more that cannot be understood."""

    protocol: str
    mark: str
    values: list[dict[str, Any]]
    faulty: bool
    attempts: int = 0
    acknowledged: bool = False


@dataclass
class Client:
    """One client of one receiver: a frame after the other, each until it is acknowledged."""

    dialect: Dialect
    receiver: Receiver
    chance: random.Random
    frames: list[Frame] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def run(self, ending: asyncio.Event) -> None:
        """Until `ending`, and then until the frame that is under way is acknowledged, and one more."""
        while not ending.is_set():
            await self.deliver()
            await asyncio.sleep(PAUSE)
        await self.deliver()

    async def deliver(self) -> None:
        """A new frame."""
        mark, conversation = uuid.uuid4().hex, self.dialect.conversation()
        sent = [{**value, "token": f"{mark}/{value['n']}/"} for value in values(self.chance.choice((1, 5, 200)), mark)]
        faulty = self.chance.random() < 0.2
        data = conversation.faulty(sent) if faulty else conversation.frame(sent)
        frame = Frame(self.dialect.name, mark, sent, faulty)
        self.frames.append(frame)
        while not frame.acknowledged:
            frame.attempts += 1
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                frame.acknowledged = await self._attempt(data, conversation)
            if not frame.acknowledged:
                await asyncio.sleep(PAUSE)

    async def _attempt(self, data: bytes, conversation: Any) -> bool:
        async with asyncio.timeout(ATTEMPT):
            connecting = ContractClient.connect(self.dialect, self.receiver.address, conversation=conversation)
            async with await connecting as client:
                await client.write(data)
                try:
                    await client.waits_for(lambda: 0 in client.acknowledged, ATTEMPT - 1)
                except AssertionError as error:  # it said what it may not say
                    self.problems.append(f"{self.dialect.name}: {error}")
                return 0 in client.acknowledged


def violations(frames: list[Frame], events: list[Stored], rejects: list[Stored]) -> list[str]:
    """What the topics lack, hold too much, or hold under wrong ids."""
    found = []
    raw = b"\0".join(record.value for record in rejects)
    sent = {frame.mark: frame for frame in frames}
    ids: dict[tuple[str, int], set[str]] = defaultdict(set)
    names: dict[str, tuple[str, int]] = {}
    for record in events:
        content = record.json
        frame = sent.get(content.get("mark"))
        if frame is None:
            continue  # of another round
        place = frame.mark, content["n"]
        value = DIALECTS[frame.protocol].value(content)
        if content["n"] >= len(frame.values) or value != frame.values[content["n"]]:
            found.append(f"{frame.protocol}: {value} was never sent")
        ids[place].add(record.id)
        if names.setdefault(record.id, place) != place:
            found.append(f"{frame.protocol}: the id {record.id} names {place} and {names[record.id]}")
    for place, several in ids.items():
        if len(several) > 1:
            found.append(f"{sent[place[0]].protocol}: event {place} has the ids {sorted(several)}")
    for frame in frames:
        if not frame.acknowledged:
            continue
        lost = [
            value["n"]
            for value in frame.values
            if (frame.mark, value["n"]) not in ids and value["token"].encode() not in raw
        ]
        if lost:
            found.append(f"{frame.protocol}: {frame.mark} is acknowledged, and events {lost[:5]} are nowhere")
        if frame.faulty and frame.mark.encode() not in raw:
            found.append(f"{frame.protocol}: {frame.mark} is acknowledged, and its fault is not in quarantine")
    return found


async def finished(tasks: list[asyncio.Task[None]], seconds: float) -> float:
    """Waits for clients that are to end. Returns how long that took; those that do not are cancelled.

    Raises what one of them has raised: that is our own mistake.
    """
    began = time.monotonic()
    done, left = await asyncio.wait(tasks, timeout=seconds)
    for task in left:
        task.cancel()
    for task in done:
        task.result()
    await asyncio.gather(*tasks, return_exceptions=True)
    return time.monotonic() - began
