"""Finds the dialect that a client speaks. Today's begins with Hello, which the original does not have."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.closed import CLOSED_SESSION
from headrace_common.session.interface import ByteSession, Frame, Peer, Question, Status, Ticket
from typing_extensions import override

from headrace_segment.session.limits import SessionLimits
from headrace_segment.session.original import OriginalSession
from headrace_segment.session.today import TodaySession
from headrace_segment.wire.codes import Kind

HELLO: Final = struct.pack(">i", Kind.HELLO)


class SegmentSession(ByteSession):
    """One client's conversation, in the dialect that it begins with. See `headrace_common.session.interface.Session`."""

    def __init__(
        self, peer: Peer, limits: SessionLimits, *, flags_in_bytes: bool = False, may_destroy: bool = False
    ) -> None:
        """`flags_in_bytes`: see `OriginalSession`; `may_destroy`: see `TodaySession`."""
        self._peer = peer
        self._flags_in_bytes = flags_in_bytes
        self._limits = limits
        self._may_destroy = may_destroy
        self._first = b""
        self._session: ByteSession = CLOSED_SESSION  # until it is known

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        if self._session is CLOSED_SESSION:
            self._first += data
            if len(self._first) < len(HELLO):
                return
            if self._first.startswith(HELLO):
                self._session = TodaySession(self._peer, self._limits, may_destroy=self._may_destroy)
            else:
                self._session = OriginalSession(self._peer, self._limits, flags_in_bytes=self._flags_in_bytes)
            data, self._first = self._first, b""
        self._session.receive(data, now_ms)

    @override
    def eof(self) -> None:
        self._session.eof()
        if self._first:
            raise ProtocolError("the stream ends inside its first message", offset=0, sample=self._first)

    @override
    def frames(self) -> Iterator[Frame]:
        return self._session.frames()

    @override
    def questions(self) -> Iterator[Question]:
        return self._session.questions()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._session.stored(ticket, stored, whole)

    @override
    def abandon(self, ticket: Ticket) -> None:
        self._session.abandon(ticket)

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self._session.answered(ticket, answer)

    @override
    def told(self, word: object) -> None:
        self._session.told(word)

    @override
    def outgoing(self) -> bytes:
        return self._session.outgoing()

    @override
    def status(self) -> Status:
        first = self._first
        return Status(partial_bytes=len(first), idle=False) if first else self._session.status()
