"""Reading a socket of ZeroMQ from the event loop.

ZeroMQ's own thread speaks with the clients and keeps their messages until they are read here. The event loop watches the
descriptor by which ZeroMQ signals that something may have happened; it signals once, so each use of a socket looks afterwards
whether there is something to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import zmq
from headrace_common.connection.messages import MessageConnection, MessageSocket
from headrace_common.session.interface import Message, Reply
from typing_extensions import override

from headrace_logjam.peers import FRAMING, ReceivedMessage
from headrace_logjam.wire import MOST_FRAMES

TURN: Final = 200
TOGETHER: Final = 128 << 10
"""Messages and bytes that are read before the budgets are asked again, and before the event loop turns: with all that follows for
them about a slice."""

OTHER: Final = 1 << 20
"""Bytes of a message beyond its largest frame: far more than its other frames have."""

ASK: Final = 10
SILENCE_MS: Final = 30_000
"""After `ASK` seconds of silence a peer's machine is asked whether it is there; a peer whose machine acknowledges nothing for
`SILENCE_MS` is disconnected."""

ALIVE: Final[Mapping[int, int]] = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: ASK,
    zmq.TCP_KEEPALIVE_INTVL: ASK,
    zmq.TCP_MAXRT: SILENCE_MS,
}
"""Options of every socket. ZeroMQ's own heartbeats would be answered after the messages that a peer has sent: while these are not
read, ZeroMQ would take the peer for dead, and disconnect it with all that it has sent. TCP asks in any case.
"""


class ReadSocket(MessageSocket):
    """A socket that is drained without waiting. Make it, `open` it with what it serves, `end` it.

    `reading`: it is read. `last`: when a message was (event loop time). `heard` is called with the messages of clients before
    they are handed on.
    """

    def __init__(
        self,
        *,
        routed: bool,
        named: str = "",
        most: int = sys.maxsize,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`routed`: each message begins with a route. `named`: the property of a message that names its client, if it has one.
        `most`: bytes of a frame. Of a message that is larger by `OTHER`, the frames beyond that are kept empty.
        `before` is called before messages that were read are handed on.
        """
        self._routed = routed
        self._named = named
        self._most = most + OTHER
        self._before = before
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] | None = None
        self._connection: MessageConnection | None = None
        self._descriptor = -1
        self._scheduled = False
        self.reading = True
        self.last = 0.0
        self.heard: Callable[[Sequence[ReceivedMessage]], None] = lambda messages: None

    def open(self, opened: zmq.Socket[bytes], connection: MessageConnection) -> None:
        """Begins to read."""
        self._socket, self._connection = opened, connection
        self._descriptor = cast("int", opened.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self._drain)
        self._look()

    def end(self) -> None:
        """Closes the socket. Messages that were sent still leave."""
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
            self._loop.add_reader(self._descriptor, self._drain)
            self._look()
        else:
            self._loop.remove_reader(self._descriptor)

    def _look(self) -> None:
        """Looks for messages, which the descriptor may not signal."""
        if not self._scheduled and self.reading:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        """Reads what has come, at most `TURN` messages and about `TOGETHER` bytes, and looks again unless nothing had."""
        self._scheduled = False
        if not self.reading or self._socket is None or self._connection is None:
            return
        messages = self._some(self._socket)
        if messages:
            self._before()
            self.last = self._loop.time()
            self._connection.received(messages)
            self._look()

    def _some(self, source: zmq.Socket[bytes]) -> list[Message]:
        messages: list[Message] = []
        heard: list[ReceivedMessage] = []
        size = 0
        while len(messages) < TURN and size < TOGETHER:
            message = self._next(source, heard)
            if message is None:
                break
            messages.append(message)
            size += message.size
        if heard:
            self.heard(heard)
        return messages

    def _next(self, source: zmq.Socket[bytes], heard: list[ReceivedMessage]) -> Message | None:
        """Returns one message, with at most its first `MOST_FRAMES` + 1 frames; None without one."""
        try:
            frame = source.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        address = cast("str", frame.get(self._named)).removeprefix("::ffff:") if self._named else ""
        parts: list[bytes] = []
        route = b""
        size = 0
        if self._routed:
            route = frame.bytes
        else:
            parts.append(frame.bytes)
            size = FRAMING + len(frame)
        while frame.more:
            frame = source.recv(copy=False)  # a message is there as a whole
            size += FRAMING + len(frame)
            if len(parts) <= MOST_FRAMES:
                parts.append(frame.bytes if size <= self._most else b"")
        if self._named:
            heard.append((frame.get(zmq.SRCFD), size))
        return Message(parts, route, address)
