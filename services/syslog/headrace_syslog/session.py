"""The conversations of syslog, pure: by RELP, whose client learns what is stored, and over TCP and UDP, which have no answers.

====================  =======================================================================================
a RELP client sends   we answer
====================  =======================================================================================
open, first           200 and our offers
syslog                200 once Kafka has stored it, in the order of the messages
close                 an empty answer, and the hint serverclose, once all messages are answered
====================  =======================================================================================

All else ends a conversation of RELP. Over TCP and UDP no sender learns what is stored, or sends it again: so a message that was
read waits for Kafka without a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from headrace_common import __version__
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Message, MessageSession, Peer, Session, Status, Ticket
from headrace_common.session.ledger import Ledger
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_syslog.events import MessageMaker, MessagesFrame
from headrace_syslog.wire.plain import SyslogDecoder
from headrace_syslog.wire.relp import ANSWER, CLOSE, GOODBYE, HINT, OPEN, STORED, SYSLOG, RelpDecoder, RelpFrame

OFFERS: Final = b"200 OK\nrelp_version=0\nrelp_software=headrace,%b\ncommands=syslog" % __version__.encode()
"""Version 0 is below any that a client may offer, and has all that we use."""


class _GatheringSession(Session):
    """Gathers messages, each with its sender, until they are handed out together."""

    protocol = "syslog"
    answers = False

    def __init__(self, limits: LimitSettings, memory: Memory | None = None) -> None:
        """`memory`: that of the service; without it, the session has its own."""
        self._maker = MessageMaker(self.protocol, limits, memory)
        self._tickets = count()
        self._gathered: list[tuple[bytes, Peer]] = []
        self._now_ms = 0

    def _ticket(self) -> Ticket:
        """Returns that of what was gathered."""
        return next(self._tickets)

    @override
    def frames(self) -> Iterator[Frame]:
        if self._gathered:
            messages, self._gathered = self._gathered, []
            yield MessagesFrame(messages, self._ticket(), self._now_ms, self._maker, answers=self.answers)


class DatagramSession(_GatheringSession, MessageSession):
    """All senders of datagrams; each is a message."""

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        self._now_ms = now_ms
        sender = Peer(message.address, 0, message.address)
        self._gathered += [(raw, sender) for raw in message.parts]


class StreamSession(_GatheringSession, ByteSession):
    """A connection of syslog over TCP."""

    def __init__(self, peer: Peer, limits: LimitSettings, memory: Memory | None = None) -> None:
        super().__init__(limits, memory)
        self._decoder: SyslogDecoder = SyslogDecoder(limits.frame_bytes)
        self._peer = peer

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        self._now_ms = now_ms
        for raw in self._decoder.receive(data):
            self._gathered.append((raw, self._peer))

    @override
    def eof(self) -> None:
        """Ends a line that has no end."""
        if self._decoder.counted:
            super().eof()
        self.receive(b"\n", self._now_ms)

    @override
    def status(self) -> Status:
        return Status(self._decoder.partial_bytes(), busy=self._decoder.busy, unacknowledgeable=True)


class RelpSession(_GatheringSession, ByteSession):
    """A connection of RELP."""

    protocol = "relp"
    answers = True

    def __init__(self, peer: Peer, limits: LimitSettings, memory: Memory | None = None) -> None:
        super().__init__(limits, memory)
        self._decoder: RelpDecoder = RelpDecoder(limits.frame_bytes)
        self._peer = peer
        self._numbers: list[int] = []  # of what is gathered
        self._pending: Ledger[list[int]] = Ledger()  # the same of what is under way
        self._answered = 0  # of the oldest of these
        self._greeting = self._farewell = b""
        self._allowed: tuple[bytes, ...] = (OPEN,)  # commands that may come now

    @override
    def _ticket(self) -> Ticket:
        numbers, self._numbers = self._numbers, []
        return self._pending.add(numbers)

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._pending.stored(ticket, stored, whole)

    @override
    def outgoing(self) -> bytes:
        """Returns all due answers. Each waits for those before it."""
        out, self._greeting = self._greeting, b""
        while (oldest := self._pending.oldest()) is not None:
            # One part may hold several messages (`spoiled`).
            stored = len(oldest.note) if oldest.whole else oldest.stored
            out += b"".join(STORED % number for number in oldest.note[self._answered : stored])
            self._answered = stored
            if self._pending.pop_whole() is None:
                return out
            self._answered = 0
        if not self._gathered:
            out, self._farewell = out + self._farewell, b""
        return out

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        self._now_ms = now_ms
        for frame in self._decoder.receive(data):
            if frame.command not in self._allowed:
                raise self._decoder.fault(f"{frame.command.decode()}, which may not come here")
            if frame.command == SYSLOG:
                self._numbers.append(frame.number)
                self._gathered.append((frame.data, self._peer))
            elif frame.command == OPEN:
                self._allowed = SYSLOG, CLOSE
                self._greeting = RelpFrame(frame.number, ANSWER, OFFERS).encode()
            else:
                self._allowed = ()
                self._farewell = RelpFrame(frame.number, ANSWER).encode() + RelpFrame(HINT, GOODBYE).encode()
