"""Syslog over TCP and UDP: messages in, and never an answer. Pure.

No sender learns what is stored, or sends it again. So a message that was read waits for Kafka without a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Message, MessageSession, Peer, Status
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_syslog.events import MessageMaker, MessagesFrame, Received
from headrace_syslog.wire.plain import SyslogDecoder

PROTOCOL: Final = "syslog"


class _Gathered:
    """Messages that came together, until they are handed out."""

    def __init__(self, limits: LimitSettings, memory: Memory | None) -> None:
        self._maker = MessageMaker(PROTOCOL, limits, memory or Memory())
        self._tickets = count()
        self.messages: list[Received] = []
        self.now_ms = 0

    def frames(self) -> Iterator[Frame]:
        if self.messages:
            messages, self.messages = self.messages, []
            yield MessagesFrame(messages, next(self._tickets), self.now_ms, self._maker, answers=False)


class StreamSession(ByteSession):
    """One connection. `memory`: that of the service; without it, the session has its own."""

    def __init__(self, peer: Peer, limits: LimitSettings, memory: Memory | None = None) -> None:
        self._decoder: SyslogDecoder = SyslogDecoder(limits.frame_bytes)
        self._gathered = _Gathered(limits, memory)
        self._peer = peer

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        self._gathered.now_ms = now_ms
        for raw in self._decoder.receive(data):
            self._gathered.messages.append(Received(raw, self._peer))

    @override
    def eof(self) -> None:
        if line := self._decoder.last():
            self._gathered.messages.append(Received(line, self._peer))

    @override
    def frames(self) -> Iterator[Frame]:
        return self._gathered.frames()

    @override
    def status(self) -> Status:
        held, busy = self._decoder.partial_bytes(), self._decoder.busy
        return Status(partial_bytes=held, busy=busy, unacknowledgeable=True)


class DatagramSession(MessageSession):
    """All senders of datagrams; each is a message."""

    def __init__(self, limits: LimitSettings, memory: Memory | None = None) -> None:
        self._gathered = _Gathered(limits, memory)

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        self._gathered.now_ms = now_ms
        sender = Peer(message.address, 0, message.address)
        self._gathered.messages += [Received(raw, sender) for raw in message.parts]

    @override
    def frames(self) -> Iterator[Frame]:
        return self._gathered.frames()
