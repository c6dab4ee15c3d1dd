"""Many clients over one socket of whole messages: messages in, replies out, and one session for all clients.

The service owns the socket. The end of a client is never reported, so the connection ends only with the service.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

from typing_extensions import override

from headrace_common.connection.driver import OF_ONE_CLIENT, Driver, End, Transport
from headrace_common.connection.receiver_state import ReceiverState, Stoppable
from headrace_common.connection.timer import LazyTimer
from headrace_common.session.interface import Message, MessageSession, Peer, Reply

STALL: Final = 1.0
"""Seconds without a stored frame, while frames wait, after which a socket is read on, up to the budgets: no client is served
then, and those that get no answer drop what is not read."""

TOGETHER: Final = 256
"""Messages that are parsed in a slice before their frames are handed on and the budgets are asked again."""


class MessageSocket(ABC):
    """The socket of a connection, as the connection uses it. Neither method blocks."""

    @abstractmethod
    def send(self, reply: Reply) -> None:
        """Sends a reply. A client that has gone or does not read loses it, so that no other client waits."""

    @abstractmethod
    def read(self, allowed: bool) -> None:
        """Resumes or stops reading. While it is stopped, messages stay in the socket's own buffers."""


class MessageConnection(Transport, Stoppable):
    """A message socket and its session. Create it after the publisher has started."""

    def __init__(
        self, receiver: ReceiverState, peer: Peer, session: MessageSession, socket: MessageSocket, most: float = inf
    ) -> None:
        """`peer` names the socket in logs; each message has its own address. The socket is not read while frames of `most` bytes,
        or messages that are no frames yet, wait and Kafka stores some: messages already read are served in order of arrival, but
        the socket takes its clients in turn.
        """
        self._receiver = receiver
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self.driver: Driver[MessageSession] = Driver(receiver, peer, session, MessageSession(), self, self._loop.time)
        self._unseen: deque[Message] = deque()  # read, not given to the session
        self._reading = True
        self._why: str | None = None  # why it closes, once it does
        self._input_over = False  # it closes, and the session has all that was read
        self._most = most
        self._frames = 0  # when `speak` was called last
        self._progress = -inf  # when Kafka had stored some, or the first of those that wait had come
        self._ahead = False  # it is not read, because of `most`
        self._timer = LazyTimer(self._due, self._tick)
        self.closed = asyncio.Event()
        """The connection has ended, by request or by a bug of ours in its session."""
        receiver.admitted += 1
        receiver.connections.add(self)

    def read_all(self) -> None:
        """Reads on from now on as far as the budgets allow."""
        self._most = inf
        self.pace()

    def received(self, messages: Sequence[Message]) -> None:
        """Takes messages that were read together, in the order of arrival. The budgets count them only afterwards: bound them."""
        size = sum([message.size for message in messages])
        self._receiver.metrics.bytes_received.inc(size)
        if self._why is not None or self.closed.is_set():
            return
        # Earlier ones wait, or much came in this turn of the loop.
        if self.is_behind() or not self.driver.arrives(self._loop.time()):
            self._unseen.extend(messages)
            self.driver.unparsed += size
            self.driver.hold(self.driver.partial_bytes + size)
            self.pace()
        else:
            self.driver.guard(lambda: self._give(messages))

    def _give(self, messages: Sequence[Message], until: float = inf) -> None:
        self.driver.take(lambda: self._receive(messages, until), self._loop.time())
        self.speak()
        self.pace()

    def _receive(self, messages: Sequence[Message], until: float) -> None:
        """Gives the session the first message and, until the time `until`, the next ones. The rest waits."""
        session, now_ms = self.driver.session, time.time_ns() // 1_000_000
        for index, message in enumerate(messages):
            if index and (session.status().busy or (until < inf and self._loop.time() >= until)):
                later = messages[index:]
                self._unseen.extendleft(reversed(later))
                self.driver.unparsed += sum([each.size for each in later])
                return
            session.receive(message, now_ms)

    def is_behind(self) -> bool:
        """Returns whether the session has not been given all that was received."""
        return not self.driver.is_broken and (bool(self._unseen) or self.driver.status.busy)

    @override
    def digest(self) -> None:
        closing = self._why is not None
        if self.is_behind() and (closing or self.driver.may_digest()):
            self.driver.guard(self._digest_some)
        if closing:
            self.driver.guard(self._end_input)
        else:
            self.pace()

    def _digest_some(self) -> None:
        """Parses at least one message, and more until the slice is over."""
        until = self._receiver.scheduler.until
        self._digest_few(until)
        while self.is_behind() and self._loop.time() < until and (self._why is not None or self.driver.may_digest()):
            self._digest_few(until)

    def _digest_few(self, until: float) -> None:
        if self.driver.status.busy or not self._unseen:
            self._give([Message(())])
            return
        messages = [self._unseen.popleft() for _ in range(min(TOGETHER, len(self._unseen)))]
        self.driver.unparsed -= sum([message.size for message in messages])
        self._give(messages, until)

    @override
    def pace(self) -> None:
        if self._why is None and not self.closed.is_set():
            allowed = self.driver.may_read(self.driver.unparsed if self.is_behind() else None)
            self._ahead = allowed and self._most < inf and self._is_ahead()
            if self._ahead:
                allowed = False
                self._timer.schedule()
        else:
            allowed = self._ahead = False
        if allowed != self._reading:
            self._reading = allowed
            self._socket.read(allowed)

    def _is_ahead(self) -> bool:
        full = bool(self._unseen) or self.driver.pending >= self._most
        return full and self._loop.time() < self._progress + STALL

    @override
    def speak(self) -> None:
        if self._most < inf:
            self._look_at_progress()
        while (reply := self.driver.session.outgoing()) is not None:
            self._socket.send(reply)
        if self._input_over and not self.driver.outstanding:
            self._close()
        else:
            self._timer.schedule()
            if self._ahead:
                self.pace()

    def _look_at_progress(self) -> None:
        if self.driver.frames < self._frames or not self._frames:
            self._progress = self._loop.time()
        self._frames = self.driver.frames

    def _due(self) -> float:
        due = self.driver.session.deadline()
        return min(inf if due is None else due, self._progress + STALL if self._ahead else inf)

    def _tick(self, now: float) -> None:
        self.driver.tick(now)
        self.driver.guard(self.speak)

    @override
    def close(self, why: str, end: End = End.SETTLED) -> None:
        if end is End.AT_ONCE:
            self._why = why
            self._close()
        elif why in OF_ONE_CLIENT:  # it gets no answer
            self.driver.guard(self.speak)
        elif self._why is None and not self.closed.is_set():
            self._why = why
            self.pace()
            self._end_input()

    def _end_input(self) -> None:
        """Ends the input once the session has all that was read, since it may never be sent again."""
        if self.is_behind():
            self.driver.ask_slice()
        elif not self._input_over and not self.closed.is_set():
            self.driver.tick(self._loop.time())  # what the session has gathered is handed out
            self._input_over = True
            self.driver.stop_reading()
            self.driver.forget_input()
            self.driver.guard(self.speak)

    @override
    def stop(self) -> None:
        self.close("drain")

    @override
    def cut(self) -> int:
        frames = self.driver.frames
        self._why = self._why or "drain"
        self._close()
        return frames

    def _close(self) -> None:
        if self.closed.is_set():
            return
        self.closed.set()
        self._timer.stop()
        self._socket.read(False)
        self.driver.leave()
        self._receiver.left(self, self.driver.peer, self._why or "drain", counted=self.driver.is_broken)
