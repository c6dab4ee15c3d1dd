"""Logjam's producers: those that wait for answers, those that do not; and intruders."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from typing import Any, Final

from headrace_common.connection.driver import Driver
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy, ProtocolError
from headrace_common.session.client import Answer
from headrace_logjam.session import ProducerSession
from headrace_logjam.settings import PORT, PULL_PORT
from headrace_logjam.wire import PING

from tests.simulation.clients import Honest, Hostile, Sent, Unanswered, reads
from tests.simulation.libzmq import wired
from tests.simulation.loop import replaced
from tests.simulation.network import ClientEnd
from tests.simulation.protocols import Producing
from tests.simulation.scenario import ClientPlan, Scenario

APP_ENVS: Final = 100
"""App-envs that take turns: more than messages on their way, so that each answer shows whose it is."""

AGENT: Final = 5.0
"""Seconds that an agent waits for an answer."""

PATIENT: Final = 30.0
"""Seconds that a client waits whose messages take long on their way, and any client until hands are shaken."""


@contextlib.contextmanager
def in_place(world: Any) -> Iterator[None]:
    """Notes whose frames are given up, and why."""
    abandoned = Driver.abandoned

    def noted(driver: Any, ticket: int, error: DeliveryError) -> None:
        senders = [driver.peer.address]
        if isinstance(driver.session, ProducerSession):
            senders = [each.sender for each in driver.session._pending[ticket].messages]
        for sender in senders:
            world.given_up.setdefault(sender, set()).add(error.policy)
        abandoned(driver, ticket, error)

    with replaced((Driver, "abandoned", noted)):
        yield


def sections(scenario: Scenario) -> dict[str, Any]:
    """The settings of a receiver of the scenario's producers."""
    chance = random.Random(f"producers/{scenario.seed}")
    return {"logjam": {"peer_messages": chance.choice((1, 3, 16, 16))}}


class Producer(Honest):
    """An agent: it waits for its answers, closes its socket when one does not come in time, and sends again."""

    port = PORT

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self.answer_time = PATIENT if plan.rough or plan.slow or world.scenario.undisturbed else AGENT

    def _speaks(self) -> Producing:
        alone = self.plan.window == self.plan.events == 1
        return Producing(self.plan.compressed, 1 if alone else APP_ENVS, identified=self.chance.random() < 0.8)

    def _receive(self, data: bytes) -> list[Answer]:
        """An answer to a later message shows that the oldest has none: it was given up."""
        try:
            return super()._receive(data)
        except ProtocolError:
            if self._client.skipped() is None or self.connections[-1].address not in self.world.given_up:
                raise
            self.world.tell(f"{self.name} finds an answer missing")
            raise ConnectionResetError from None


class Pusher(Unanswered):
    """Sends each message once, to a socket that does not answer."""

    port = PULL_PORT

    def _speaks(self) -> Producing:
        chance, compressed = self.chance, self.plan.compressed
        told = compressed or self.port != PULL_PORT or chance.random() < 0.8
        app_envs, identified = chance.choice((1, APP_ENVS)), chance.random() < 0.8
        return Producing(compressed, app_envs, asks=False, told=told, identified=identified)

    async def _begin(self, end: ClientEnd) -> None:
        await shakes_hands(self._client, end)

    def _may_be_lost(self, frame: Sent, end: ClientEnd) -> bool:
        """With its connection, or with a process that was killed or has stopped; and what Kafka has refused."""
        receiver, undisturbed = end.receiver, self.world.scenario.undisturbed
        if receiver is None or receiver.dead or (not undisturbed and end.broken):
            return True
        if self.world.given_up.get(end.address, {DeliveryPolicy.RETRY}) != {DeliveryPolicy.RETRY}:
            return True
        return bool(receiver.ended.is_set())


class Logger(Pusher):
    """Sends each message once, and asks for no answer where others do."""

    port = PORT


async def shakes_hands(speaker: Producing, end: ClientEnd) -> None:
    """Waits for the other side."""
    speaker.again()
    async with asyncio.timeout(PATIENT):
        while not speaker.shaken.is_set():
            speaker.messages(await reads(end))


class Intruder(Hostile):
    """As of the other protocols; its garbage is whole messages, of which each asks for an answer."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        pushed = any(each.kind == "pusher" for each in world.scenario.clients)
        self.port = self.chance.choice((PORT, PULL_PORT)) if pushed else PORT

    async def garbage(self, end: ClientEnd) -> None:
        chance = self.chance
        frames = [chance.choice((b"", PING, chance.randbytes(40))) for _ in range(chance.randint(1, 6))]
        await end.send(wired([b"", *frames]))
        await self.silent(end)
