"""One connection of a tool: it sends bytes, and notes what it hears and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.client import Answer, Client, Remark

from headrace_cli.wire.channel import opened
from headrace_cli.wire.target import Target

_READ = 65_536


@dataclass
class Line:
    """A connection. `answers` and `remarks` have the time at which each came, in seconds of the monotonic clock.

    `ended`: how the server ended it (``closes``, ``resets``); `fault`: what it said that no server may say.
    """

    client: Client
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answers: list[tuple[float, Answer]] = field(default_factory=list)
    remarks: list[tuple[float, Remark]] = field(default_factory=list)
    ended: str = ""
    fault: str = ""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, data: bytes, seconds: float) -> None:
        """Write `data` within `seconds`. What a server does that does not read, or closes, shows in what is heard."""
        with contextlib.suppress(OSError, TimeoutError):
            self.writer.write(data)
            async with asyncio.timeout(seconds):
                await self.writer.drain()

    def finish(self) -> None:
        """Send no more; over TLS that cannot be said."""
        with contextlib.suppress(OSError, RuntimeError):
            if self.writer.can_write_eof():
                self.writer.write_eof()

    def whole(self, frame: int) -> bool:
        """Whether all of a frame is acknowledged."""
        return self.whole_at(frame) is not None

    def whole_at(self, frame: int) -> float | None:
        """When all of a frame was acknowledged."""
        return next((at for at, answer in self.answers if answer.frame == frame and answer.whole), None)

    async def until(self, there: Callable[[], bool], seconds: float) -> bool:
        """Wait until `there`, the connection's end or `seconds`; say whether it is there."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not there() and not self.over:
                    self._news.clear()
                    await self._news.wait()
        return there()

    async def acknowledged(self, frame: int, seconds: float) -> bool:
        """Wait until all of a frame is acknowledged."""
        return await self.until(lambda: self.whole(frame), seconds)

    async def silence(self, seconds: float) -> None:
        """Listen for `seconds`, or until the server ends it."""
        await self.until(lambda: False, seconds)

    @property
    def over(self) -> bool:
        """Whether nothing more will be heard."""
        return bool(self.ended or self.fault)

    async def listen(self) -> None:
        """Note what comes, until the server ends it or says what it may not."""
        try:
            while data := await self.reader.read(_READ):
                now = time.monotonic()
                for heard in self.client.receive(data):
                    if isinstance(heard, Answer):
                        self.answers.append((now, heard))
                    else:
                        self.remarks.append((now, heard))
                self._news.set()
            self.ended = "closes"
        except ProtocolError as error:
            self.fault = str(error)
        except OSError:
            self.ended = "resets"
        finally:
            self._news.set()


@asynccontextmanager
async def connected(target: Target, client: Client, seconds: float) -> AsyncIterator[Line]:
    """Open a connection and say the greeting. What `client` made before is not under way on it.

    Raises what `opened` raises if there is none within `seconds`.
    """
    reader, writer = await opened(target, seconds)
    line = Line(client, reader, writer)
    listening = asyncio.create_task(line.listen())
    try:
        if greeting := client.again():
            await line.send(greeting, seconds)
        yield line
    finally:
        listening.cancel()
        await asyncio.wait({listening})
        writer.transport.abort()


def outcome(line: Line, frame: int = 0) -> str:
    """Return a server's reaction to a frame, in a few words."""
    if line.fault:
        return f"says what no server may say: {line.fault}"
    done = "acknowledges it" if line.whole(frame) else ""
    return " and ".join(filter(None, (done, f"{line.ended} the connection" if line.ended else ""))) or "says nothing"
