"""Messages that are read together become frames, one for each application. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject
from headrace_common.session.interface import Frame, Message, MessageSession, Run, Ticket
from typing_extensions import override

from headrace_logjam.events import RecordMaker
from headrace_logjam.wire import LogjamMessage

OVERHEAD: Final = 512
"""Bytes that a message costs beyond its frames."""

PASSING: Final = frozenset((Reason.OVERSIZED, Reason.TOO_DEEP))
"""Reasons for which a sound message is no event: with other settings it would be one."""


@dataclass(eq=False)
class MessagesFrame(Frame):
    """Messages of one application, of which all ask for an answer, or none does. Part i is of message i."""

    ticket: Ticket
    received_ms: int
    maker: RecordMaker
    ordering_key: bytes
    acknowledged: bool
    kept: bool
    messages: list[LogjamMessage] = field(default_factory=list)
    size: int = 0
    refused: set[int] = field(default_factory=set)
    """The messages that can never be events, as far as their parts have been made."""

    @override
    def runs(self) -> Iterator[Run]:
        for index, message in enumerate(self.messages):
            part = yield from self.maker.make(message, self.received_ms)
            if isinstance(part, Reject) and part.reason not in PASSING:
                self.refused.add(index)
            yield part

    @override
    def spoiled(self, detail: str) -> Reject:
        return self.maker.spoiled(self.messages, detail)


class GatheringSession(MessageSession):
    """See `headrace_common.session.interface.MessageSession`."""

    def __init__(self, endpoint: bytes, maker: RecordMaker) -> None:
        """`endpoint`: the beginning of ordering keys."""
        self._endpoint = endpoint
        self._maker = maker
        self._tickets = itertools.count()
        self._gathered: dict[Ticket, MessagesFrame] = {}
        self._open: dict[bytes, MessagesFrame] = {}  # of the gathered, the last of each key
        self._pending: dict[Ticket, MessagesFrame] = {}

    def gather(self, message: LogjamMessage, received: Message, now_ms: int) -> None:
        """Adds a message to the frame of its application."""
        key, asks = message.key, message.asks
        frame = self._open.get(key)
        if frame is None or frame.acknowledged is not asks:
            ticket = next(self._tickets)
            frame = MessagesFrame(ticket, now_ms, self._maker, b"%b/%b" % (self._endpoint, key), asks, not asks)
            self._open[key] = self._gathered[ticket] = frame
        frame.messages.append(message)
        frame.size += received.size + OVERHEAD

    @override
    def frames(self) -> Iterator[Frame]:
        gathered, self._gathered = self._gathered, {}
        self._open.clear()
        self._pending |= gathered
        return iter(gathered.values())
