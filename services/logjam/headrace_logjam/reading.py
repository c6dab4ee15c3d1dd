"""Reading a socket of ZeroMQ from the event loop.

ZeroMQ's own thread speaks with the clients and keeps their messages until they are read here. The event loop watches the
descriptor by which ZeroMQ says that something may have happened; it says so once, so whoever touches a socket looks afterwards
whether there is something to read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, cast

import zmq
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.session.interface import Message, Reply
from typing_extensions import override

TURN: Final = 500
"""Messages that are read before the event loop turns."""

TOGETHER: Final = 128 << 10
"""Bytes that are read before the budgets are asked again."""

FRAMES: Final = 64
"""Frames of a message that are read. A message with more is none of Logjam's, and is dropped as a whole."""

HEARTBEAT_MS: Final = 10_000
SILENCE_MS: Final = 30_000
"""A peer whose machine acknowledges nothing for so long is disconnected."""

ALIVE: Final[Mapping[int, int]] = {zmq.HEARTBEAT_IVL: HEARTBEAT_MS, zmq.HEARTBEAT_TIMEOUT: 0, zmq.TCP_MAXRT: SILENCE_MS}
"""Options of every socket. The answers to heartbeats stand behind what a peer has sent: while that is not read, ZeroMQ would
take the peer for dead, disconnect it, and with it all that it has sent. So TCP judges, whether it is read or not.
"""


class ReadSocket(MessageSocket):
    """A socket that is drained without waiting. Make it, `open` it with what it serves, `end` it."""

    def __init__(
        self,
        ignored: Callable[[str], None],
        *,
        routed: bool,
        named: bool = True,
        reads: Callable[[bool], None] = lambda empty: None,
    ) -> None:
        """`ignored` hears of messages that are passed over. `routed`: each begins with whom to answer. `named`: each comes from
        a client that `AccessControl` has named. `reads`: is called before messages that were read are handed on, and when
        there are no more of them (`empty`).
        """
        self._ignored = ignored
        self._routed = routed
        self._named = named
        self._reads = reads
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] | None = None
        self._connection: MessageConnection | None = None
        self._descriptor = -1
        self._scheduled = False
        self.reading = True
        self.last = 0.0
        """When a message was read (event loop time)."""

    def open(self, opened: zmq.Socket[bytes], connection: MessageConnection) -> None:
        """Begins to read."""
        self._socket, self._connection = opened, connection
        self._descriptor = cast("int", opened.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)
        self._look()

    def end(self) -> None:
        """Closes the socket. What was said still leaves."""
        if self._socket is not None:
            self.read(False)
            self._socket.close()
            self._socket = None

    @override
    def send(self, reply: Reply) -> None:
        if self._socket is None:
            return
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send_multipart((reply.route, *reply.parts), zmq.NOBLOCK)
        self._look()

    @override
    def read(self, allowed: bool) -> None:
        if allowed is self.reading or self._socket is None:
            return
        self.reading = allowed
        if allowed:
            self.last = self._loop.time()
            self._loop.add_reader(self._descriptor, self._drain)
            self._look()
        else:
            self._loop.remove_reader(self._descriptor)

    def _look(self) -> None:
        """There may be something to read, of which the descriptor says nothing."""
        if not self._scheduled and self.reading:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        connection = self._connection
        assert connection is not None
        left = TURN
        while left and self.reading and self._socket is not None:
            messages = self._some(self._socket, left)
            self._reads(not messages)
            if messages:
                self.last = self._loop.time()
                connection.received([message for message in messages if message.parts])
                left -= len(messages)
            else:
                return
        self._look()

    def _some(self, source: zmq.Socket[bytes], most: int) -> list[Message]:
        """At most so many messages, about `TOGETHER` bytes; none: nothing is there."""
        messages: list[Message] = []
        size = 0
        while len(messages) < most and size < TOGETHER:
            message = self._next(source)
            if message is None:
                break
            messages.append(message)
            size += message.size
        return messages

    def _next(self, source: zmq.Socket[bytes]) -> Message | None:
        """One message. None: nothing is there. Without frames: it is to be passed over."""
        try:
            frame = source.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        address = cast("str", frame.get("User-Id")) if self._named else ""
        parts: list[bytes] = []
        route = b""
        if self._routed:
            route = frame.bytes
        else:
            parts.append(frame.bytes)
        while frame.more:
            frame = source.recv(copy=False)  # a message is there as a whole
            if len(parts) <= FRAMES:
                parts.append(frame.bytes)
        if len(parts) > FRAMES:
            self._ignored("frames")
            parts = []
        return Message(parts, route, address)
