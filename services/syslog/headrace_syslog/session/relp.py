"""One RELP client's conversation, pure.

====================  =======================================================================================
the client sends      we answer
====================  =======================================================================================
open, first           200 and our offers
syslog                200 once Kafka has stored it
close                 an empty answer, and the hint serverclose
anything else         500
====================  =======================================================================================

All answers leave in the order of what they answer. Before `open` and after `close` nothing else may come.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count
from typing import Final

from headrace_common import __version__
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_syslog.events import MessageMaker, MessagesFrame, Received
from headrace_syslog.wire.relp import CLOSE, GOODBYE, HINT, OPEN, SYSLOG, RelpDecoder, RelpFrame, answer

PROTOCOL: Final = "relp"
VERSION: Final = re.compile(rb"^relp_version=(\d)$", re.MULTILINE)
NEWEST: Final = 1
REFUSALS: Final = 256
"""Maximum unknown commands of a connection: their answers wait for those before them, and nothing else bounds them."""


class _Phase(Enum):
    """Where a conversation is."""

    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Batch:
    """Messages that are published together. `answered`: how many of them are."""

    received_ms: int
    numbers: list[int] = field(default_factory=list)
    messages: list[Received] = field(default_factory=list)
    answered: int = 0
    stored: int = 0

    def due(self) -> bytes:
        """Returns the answers to what is stored and not answered yet."""
        numbers, self.answered = self.numbers[self.answered : self.stored], self.stored
        return b"".join(map(answer, numbers))


class RelpSession(ByteSession):
    """Messages in, answers out."""

    def __init__(self, peer: Peer, limits: LimitSettings, memory: Memory | None = None) -> None:
        """`memory`: that of the service; without it, the session has its own."""
        self._decoder: RelpDecoder = RelpDecoder(limits.frame_bytes)
        self._maker = MessageMaker(PROTOCOL, limits, memory or Memory())
        self._peer = peer
        self._phase = _Phase.NEW
        self._ready: deque[_Batch] = deque()
        self._tickets = count()
        self._storing: dict[Ticket, _Batch] = {}
        self._owed: deque[_Batch | bytes] = deque()
        self._refusals = 0
        self._abandoned = False

    # Decides which answers may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._storing[ticket].stored = stored
        if whole:
            del self._storing[ticket]

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Answers nothing from now on."""
        self._abandoned = True

    @override
    def outgoing(self) -> bytes:
        """Returns all due answers. Each waits for those before it."""
        out = b""
        while self._owed and not self._abandoned:
            oldest = self._owed[0]
            out += oldest if isinstance(oldest, bytes) else oldest.due()
            if isinstance(oldest, _Batch) and oldest.answered < len(oldest.numbers):
                break
            self._owed.popleft()
        return out

    # Bytes to messages

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        batch: _Batch | None = None
        for frame in self._decoder.receive(data):
            if frame.command == SYSLOG and self._phase is _Phase.OPEN:
                if batch is None:
                    batch = _Batch(now_ms)
                    self._ready.append(batch)
                    self._owed.append(batch)
                batch.numbers.append(frame.number)
                batch.messages.append(Received(frame.data, self._peer))
            else:
                batch = None
                self._owed.append(self._reply(frame))

    def _reply(self, frame: RelpFrame) -> bytes:
        """Returns the answer to a frame that is no message. Raises `ProtocolError` for one that may not come now."""
        if (frame.command == OPEN) is not (self._phase is _Phase.NEW) or self._phase is _Phase.CLOSED:
            name = frame.command.decode()
            raise self._decoder.fault(f"{name} {'before open' if self._phase is _Phase.NEW else 'after it'}")
        if frame.command == OPEN:
            self._phase = _Phase.OPEN
            return answer(frame.number, offers(frame.data))
        if frame.command == CLOSE:
            self._phase = _Phase.CLOSED
            return answer(frame.number, b"") + RelpFrame(HINT, GOODBYE).encode()
        self._refusals += 1
        if self._refusals > REFUSALS:
            raise self._decoder.fault(f"more than {REFUSALS} unknown commands")
        return answer(frame.number, b"500 unknown command")

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            batch = self._ready.popleft()
            ticket = next(self._tickets)
            self._storing[ticket] = batch
            yield MessagesFrame(batch.messages, ticket, batch.received_ms, self._maker, answers=True)
            batch.messages = []

    @override
    def eof(self) -> None:
        if self._decoder.partial_bytes():
            raise self._decoder.fault("the stream ends inside a frame")

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self._decoder.partial_bytes(), busy=self._decoder.busy)


def offers(asked: bytes) -> bytes:
    """Returns the data of the answer to an `open`: the lower of both versions, and the only command that we take."""
    version = VERSION.search(asked)
    lower = min(NEWEST, int(version[1])) if version else 0
    return b"200 OK\nrelp_version=%d\nrelp_software=headrace,%b\ncommands=syslog" % (lower, __version__.encode())
