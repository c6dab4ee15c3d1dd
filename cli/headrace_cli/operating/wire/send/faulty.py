"""A connection of a broken client: it sends all that a sound one sends, and plays a fault on every N-th frame."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from typing_extensions import override

from headrace_cli.clients.compression import Compression
from headrace_cli.operating.wire.address import Target
from headrace_cli.operating.wire.send.beside import Beside, leave, unasking
from headrace_cli.operating.wire.send.channel import Channel, StreamChannel
from headrace_cli.operating.wire.send.connections import BrokenOffError, Connection, ServerClosedError, Tally, Waiting
from headrace_cli.operating.wire.send.faults import BESIDE, Kind, Played
from headrace_cli.operating.wire.send.source import Source

RETURNS: Final = 10
"""Connections in a row that the server may end before it acknowledges anything, until the client stays away."""
SLOW_WINDOW: Final = 1024
"""Frames that a slow reader sends ahead."""
RECEIVE_BUFFER: Final = 4096
"""Bytes that its kernel takes in for it, about."""
_RETURN: Final = 0.1


class FaultyConnection(Connection):
    """After a connection that it broke off, or that the server ended, it comes again and sends what is unacknowledged again."""

    def __init__(
        self,
        target: Target,
        source: Source,
        tally: Tally,
        batch: int,
        timeout: float,
        compression: Compression | None,
        played: Played,
        beside: Beside,
    ) -> None:
        if played.fault.kind is Kind.SLOW_READER:
            self.window = SLOW_WINDOW
        super().__init__(target, source, tally, batch, timeout, compression)
        self._fault = played.fault
        self._played = played
        self._beside = beside
        self._frames = 0
        self._came_back = 0
        self._heard_before = 0
        self._opened = False
        self._channel: Channel | None = None
        self._hearing: asyncio.TimerHandle | None = None

    @override
    def begun(self, channel: Channel) -> None:
        self._channel = channel
        if self._fault.kind is Kind.SLOW_READER and isinstance(channel, StreamChannel):
            channel.shrink(RECEIVE_BUFFER)
        if self._opened and self._frames:
            hello = self.client.greeting()
            self.client.again()
            channel.write(hello + b"".join(each.frame.removeprefix(hello) for each in self.waiting))
            self._played.again += len(self.waiting)
        self._opened = True

    @override
    async def may_send(self) -> None:
        if self._fault.kind is Kind.HALF_FRAME and (self._frames + 1) % self._fault.every == 0:
            await self.idle.wait()  # so that nothing but this frame is sent twice

    @override
    async def put(self, channel: Channel, numbers: range) -> None:
        self._frames += 1
        kind, due = self._fault.kind, self._frames % self._fault.every == 0
        if due and kind is Kind.NO_ACK:
            await self._leave(numbers)
            return
        frame = self.made(numbers)
        self.waiting[-1].frame = frame
        if due and kind is Kind.HALF_FRAME:
            channel.write(frame[: len(frame) // 2])
            raise BrokenOffError
        channel.write(frame)
        if due and kind is Kind.RESEND:
            self.client.repeat()
            self.waiting.append(Waiting(numbers, time.monotonic(), frame, repeats=True))
            channel.write(frame.removeprefix(self.client.greeting()))
            self._played.times += 1
            self._played.again += 1
        await channel.drain()
        if due and kind is Kind.CUT:
            raise BrokenOffError
        if due and kind is Kind.SLOW_READER and not self.deaf:
            self._deafen(channel)
        if due and kind in BESIDE:
            self._beside.start()

    async def _leave(self, numbers: range) -> None:
        frame = unasking(self.target.protocol, [self.source.event(number) for number in numbers])
        self.tally.count(len(numbers), frame)
        self.tally.unasked.append(numbers)
        self._played.times += 1
        try:
            self._played.answers[await leave(self.target, frame, self.timeout)] += 1
        finally:
            self.room.release()

    @override
    async def returns(self, error: Exception, channel: Channel) -> bool:
        self._hear_again()
        if isinstance(error, BrokenOffError):
            self._played.times += 1
            if self._fault.kind is Kind.CUT:
                if isinstance(channel, StreamChannel):
                    channel.reset_on_abort()
                return True
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self.timeout):
                    await channel.close()
            return True
        if not isinstance(error, ServerClosedError | OSError):
            return False
        self._played.closed += 1
        self._came_back = 1 if self.heard > self._heard_before else self._came_back + 1
        self._heard_before = self.heard
        if self._came_back > RETURNS:
            return False
        await asyncio.sleep(_RETURN)
        return True

    # A slow reader

    def _deafen(self, channel: Channel) -> None:
        self._played.times += 1
        self.deaf = True
        if isinstance(channel, StreamChannel):
            channel.hear(False)
        self._hearing = asyncio.get_running_loop().call_later(self._fault.pause, self._hear_again)

    def _hear_again(self) -> None:
        if not self.deaf or self._hearing is None:
            return
        self._hearing.cancel()
        self.deaf = False
        self.progress = time.monotonic()
        if isinstance(self._channel, StreamChannel):
            self._channel.hear(True)

    @override
    def stopped(self) -> None:
        self._hear_again()
