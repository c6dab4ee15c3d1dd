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

from headrace_common.connection.driver import ABANDONED, FAULT, Driver, End
from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.session.interface import Message, MessageSession, Peer, Reply

STALL: Final = 1.0
"""Seconds that the oldest frame has waited after which a socket is read on, up to the budgets: Kafka hardly stores then, and
clients that get no answer drop what is not read."""


class MessageSocket(ABC):
    """The socket of a connection, as the connection uses it. Neither method blocks."""

    @abstractmethod
    def send(self, reply: Reply) -> None:
        """Sends a reply. A client that has gone or does not read loses it, so that no other client waits."""

    @abstractmethod
    def read(self, allowed: bool) -> None:
        """Resumes or stops reading. While it is stopped, messages stay in the socket's own buffers."""


class MessageConnection(Driver[MessageSession]):
    """A message socket and its session. Create it after the publisher has started."""

    def __init__(
        self, receiver: ReceiverState, peer: Peer, session: MessageSession, socket: MessageSocket, most: float = inf
    ) -> None:
        """`peer` names the socket in logs; each message has its own address. The socket is not read while frames of `most` bytes,
        or messages that are no frames yet, wait and Kafka stores some: messages already read are served in order of arrival, but
        the socket takes its clients in turn.
        """
        super().__init__(receiver, peer, session, MessageSession())
        self._socket = socket
        self.unseen: deque[Message] = deque()
        self._reading = True
        self._why = ""  # why it closes, once it does or has
        self._most = most
        self._ahead = False  # it is not read, because of `most`
        self.closed = asyncio.Event()
        """The connection has ended, by request or by a bug of ours in its session."""
        receiver.connections.add(self)

    def read_all(self) -> None:
        """Reads on from now on as far as the budgets allow."""
        self._most = inf
        self.pace()

    def received(self, messages: Sequence[Message]) -> None:
        """Takes messages that were read together, in the order of arrival. The budgets count them only afterwards: bound them."""
        size = sum([message.size for message in messages])
        self._receiver.metrics.bytes_received.inc(size)
        now = self._loop.time()
        for message in messages:
            self._receiver.metrics.sources.add(message.address or self.peer.identity, 1, message.size, now)
        if self._why:
            return
        # Earlier ones wait, or much came in this turn of the loop.
        waits = self.is_behind() or not self.arrives(now)
        self.unseen.extend(messages)
        self.unparsed += size
        if waits:
            self.hold(self.partial_bytes + size)
            self.pace()
        else:
            self.guard(self._parse)

    @override
    def credit(self, stored: int, size: int, now: float) -> None:
        """Does nothing: a frame may have many senders. What each sends is counted when it comes."""

    def _parse(self, until: float = inf) -> None:
        self.take(lambda: self._receive(until))
        self.speak()
        self.pace()

    def _receive(self, until: float) -> None:
        """Gives the session the first message that waits and, until the time `until`, the next ones."""
        session, now_ms = self.session, time.time_ns() // 1_000_000
        while self.unseen:
            message = self.unseen.popleft()
            self.unparsed -= message.size
            session.receive(message, now_ms)
            if until < inf and self._loop.time() >= until:
                return

    @override
    def work(self, until: float) -> None:
        closing, budget = bool(self._why), self._receiver.budget
        if self.is_behind() and (closing or budget.may_digest(self)):
            self.guard(lambda: self._parse(until))
        if closing:
            self.guard(self._end_input)
        else:
            self.pace()

    @override
    def pace(self) -> None:
        allowed = not self._why and self.may_read(self.unparsed)
        self._ahead = allowed and self._most < inf and self._is_ahead()
        if self._ahead:
            allowed = False
            self.schedule()
        if allowed != self._reading:
            self._reading = allowed
            self._socket.read(allowed)

    def _is_ahead(self) -> bool:
        full = bool(self.unseen) or self.pending >= self._most
        return full and self._loop.time() < self._stalls_at()

    def _stalls_at(self) -> float:
        return next((arrived + STALL for _, _, arrived in self.under_way.values()), inf)

    @override
    def speak(self) -> None:
        while (reply := self.session.outgoing()) is not None:
            self._socket.send(reply)
        if self._input_over and not self.outstanding:
            self._close()
        else:
            self.schedule()
            if self._ahead:
                self.pace()

    @override
    def due(self) -> float:
        return self._stalls_at() if self._ahead else inf

    @override
    def expire(self, now: float) -> None:
        self.pace()

    @override
    def close(self, why: str, end: End = End.SETTLED) -> None:
        if end is End.AT_ONCE:
            self._why = why
            self._close()
        elif why in (FAULT, ABANDONED):  # of the client of one frame, which gets no answer: the others go on
            self.guard(self.speak)
        elif not self._why:
            self._why = why
            self.pace()
            self._end_input()

    def _end_input(self) -> None:
        """Ends the input once the session has all that was read, since it may never be sent again."""
        if self.is_behind():
            self._receiver.scheduler.enqueue(self)
        elif not self._input_over:
            self.stop_reading()
            self._receiver.budget.forget(self)
            self.guard(self.speak)

    @override
    def stop(self) -> None:
        self.close("drain")

    @override
    def cut(self) -> int:
        self._why = self._why or "drain"
        self._close()
        return len(self.under_way)

    def _close(self) -> None:
        if self.closed.is_set():
            return
        self.closed.set()
        self.stop_timer()
        self._socket.read(False)
        self.leave(self._why, counted=self.is_broken)
