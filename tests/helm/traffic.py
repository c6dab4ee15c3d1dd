"""A client in a pod: sends until SIGTERM, frame by frame, each again until it is acknowledged. Prints how many events were.

``python traffic.py PROTOCOL HOST PORT FIRST``: its events are numbered from FIRST. It needs only what the image of the tools has.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from headrace_cli.wire.channel import Channel, channel_to
from headrace_cli.wire.source import shop_event
from headrace_cli.wire.target import CLIENTS, Target
from headrace_common.session.client import Answer

EVENTS = 50
PAUSE = 0.05
PATIENCE = 10.0


class Sender:
    """A client with one connection at a time, and one frame on its way."""

    def __init__(self, target: Target, first: int) -> None:
        self.acknowledged = 0
        self._target = target
        self._first = first
        self._client = CLIENTS[target.protocol]()
        self._frame = b""

    async def run(self, stopped: asyncio.Event) -> None:
        """Until `stopped`, and until the frame that is under way is acknowledged."""
        while self._frame or not stopped.is_set():
            try:
                await self._converse(stopped)
            except (OSError, EOFError):
                await asyncio.sleep(0.2)

    async def _converse(self, stopped: asyncio.Event) -> None:
        """One connection. Raises `EOFError` when the server ends it, `TimeoutError` when it says nothing."""
        channel = await channel_to(self._target, PATIENCE)
        try:
            await channel.send(self._client.again())
            if self._frame:
                self._client.repeat(self._client.made - 1)
            while self._frame or not stopped.is_set():
                first = self._first + self.acknowledged
                self._frame = self._frame or self._client.frame([shop_event(first + n) for n in range(EVENTS)])
                async with asyncio.timeout(PATIENCE):  # over ZeroMQ nothing can be sent when the server has gone
                    await channel.send(self._frame)
                    await self._hears(channel)
                self._frame = b""
                self.acknowledged += EVENTS
                await asyncio.sleep(PAUSE)
        finally:
            channel.abort()

    async def _hears(self, channel: Channel) -> None:
        """Waits for the acknowledgement of the last frame."""
        whole = Answer(self._client.made - 1, EVENTS, EVENTS)
        while data := await channel.read():
            if whole in self._client.receive(data):
                return
        raise EOFError


async def main(protocol: str, host: str, port: str, first: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    sender = Sender(Target(protocol, host, int(port)), int(first))
    await sender.run(stopped)
    print(sender.acknowledged, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
