"""Faults that have connections of their own: harmful bytes, and frames whose sender is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace_cli.wire.channel import channel_to, opened
from headrace_cli.wire.line import connected, outcome
from headrace_cli.wire.target import CLIENTS, Target
from headrace_common.session.client import Client
from headrace_forward.client import ForwardClient
from headrace_logjam.client import LogjamClient, unasking

from tests.broken.faults import Kind, Played

SOUND: Final = 2
"""Events beside one that is not understood. They have no run's mark."""
_READ: Final = 65_536
_NOTHING: Final = "says nothing"


class Beside:
    """Plays one at a time: what falls due while another is played is left out. `timeout`: seconds for each of its steps."""

    def __init__(self, target: Target, played: Played, timeout: float) -> None:
        self._target = target
        self._played = played
        self._timeout = timeout
        self._playing: asyncio.Task[None] | None = None
        self._bomb: tuple[Client, bytes] | None = None

    def start(self) -> None:
        """Play the fault once, in a task, unless it is being played or was played often enough."""
        if self._playing is not None and not self._playing.done():
            return
        if self._played.times < self._played.fault.most:
            self._played.times += 1
            self._playing = asyncio.create_task(self._play())

    async def finish(self, stop: asyncio.Event) -> None:
        """Wait for the last play, until `stop`."""
        if self._playing is None:
            return
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({self._playing, stopped}, return_when="FIRST_COMPLETED")
        for task in (self._playing, stopped):
            task.cancel()
        await asyncio.wait({self._playing, stopped})
        if not self._playing.cancelled():
            self._playing.result()

    async def _play(self) -> None:
        try:
            answer = await (self._malformed() if self._played.fault.kind is Kind.MALFORMED else self._harmful())
        except (OSError, TimeoutError):
            answer = "takes no connection"
        self._played.answers[answer] += 1
        self._played.closed += "closes" in answer or "resets" in answer

    async def _harmful(self) -> str:
        client, data = await self._made()
        async with connected(self._target, client, self._timeout) as line:
            client.repeat(0)
            await line.send(data, self._timeout)
            await line.acknowledged(0, self._timeout)
            return outcome(line)

    async def _made(self) -> tuple[Client, bytes]:
        client = CLIENTS[self._target.protocol]()
        if self._played.fault.kind is Kind.BAD_JSON:
            return client, client.faulty([{"message": "beside one that is not understood"}] * SOUND)
        if self._bomb is None:  # made once: it costs memory and time
            self._bomb = client, await asyncio.to_thread(client.bomb, self._played.fault.inflated)
        return self._bomb

    async def _malformed(self) -> str:
        reader, writer = await opened(self._target, self._timeout)
        try:
            writer.write(CLIENTS[self._target.protocol].malformed)
            async with asyncio.timeout(self._timeout):
                while await reader.read(_READ):
                    pass
            return "closes the connection"
        except TimeoutError:
            return _NOTHING
        except OSError:
            return "resets the connection"
        finally:
            writer.transport.abort()


def unheard(protocol: str, events: Sequence[Mapping[str, Any]]) -> bytes:
    """What a client sends that will not listen: one frame. In Forward and Logjam it asks for nothing."""
    client = CLIENTS[protocol]()
    if isinstance(client, ForwardClient):
        return client.unasking([client.document(event) for event in events])
    data = client.greeting() + client.frame(events)
    return unasking(data) if isinstance(client, LogjamClient) else data


async def leave(target: Target, frame: bytes, seconds: float) -> str:
    """Send a frame over a connection of its own, and end it without reading. Return what the server did, as far as it shows.

    `seconds`: time for all of it.
    """
    try:
        async with asyncio.timeout(seconds):
            channel = await channel_to(target, seconds)
            try:
                channel.write(frame)
                await channel.drain()
                await channel.close()
            finally:
                channel.abort()
    except TimeoutError:
        return "does not take it"
    except OSError:
        return "resets the connection"
    return "takes it"
