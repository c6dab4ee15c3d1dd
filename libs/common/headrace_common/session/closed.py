"""Replaces the session of an ended conversation. It holds nothing, so frames that wait for Kafka keep no session buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from typing_extensions import override

from headrace_common.session.interface import (
    ByteSession,
    Frame,
    Message,
    MessageSession,
    Reply,
    Session,
    Status,
    Ticket,
)

NOTHING: Final = Status()
"""It holds nothing."""


class _Closed(Session):
    @override
    def frames(self) -> Iterator[Frame]:
        return iter(())

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        pass

    @override
    def abandon(self, ticket: Ticket) -> None:
        pass

    @override
    def status(self) -> Status:
        return NOTHING


class ClosedSession(_Closed, ByteSession):
    """Ignores all input and gives no output."""

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        pass

    @override
    def eof(self) -> None:
        pass

    @override
    def outgoing(self) -> bytes:
        return b""


class ClosedMessageSession(_Closed, MessageSession):
    """Ignores all input and gives no output."""

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        pass

    @override
    def outgoing(self) -> Reply | None:
        return None


CLOSED_SESSION: Final = ClosedSession()
CLOSED_MESSAGE_SESSION: Final = ClosedMessageSession()
