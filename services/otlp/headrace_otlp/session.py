"""One OTLP client's conversation, pure: requests are answered in their order, one of logs when Kafka has all its records.

Nobody is told to send again: an exporter of OpenTelemetry gives up what it would send after its timeout, so it hears at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Peer, Ticket
from typing_extensions import override

from headrace_otlp.events import RequestFrame
from headrace_otlp.wire import OtlpDecoder, Request

PIPELINED: Final = 1024
"""Answers that may wait for their turn: a client that sends further requests is not served."""


class OtlpSession(ByteSession):
    """Requests in, responses out."""

    def __init__(self, peer: Peer, limits: LimitSettings) -> None:
        self._decoder: OtlpDecoder = OtlpDecoder(limits.frame_bytes)
        self._peer = peer
        self._limits = limits
        self._tickets = count()
        self._ready: deque[RequestFrame] = deque()
        self._storing: dict[Ticket, RequestFrame] = {}
        self._owed: deque[Request | bytes] = deque()

    # Decides which answers may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            self._storing.pop(ticket).answer()

    @override
    def outgoing(self) -> bytes:
        """Returns the answers that are due, up to the first request that waits."""
        out = []
        while self._owed and not self.over:
            oldest = self._owed[0]
            answer = oldest.answer if isinstance(oldest, Request) else oldest
            if not answer:
                break
            out.append(answer)
            self.over = isinstance(oldest, Request) and oldest.last
            self._owed.popleft()
        return b"".join(out)

    # Bytes to requests

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        try:
            for message in self._decoder.receive(data):
                self._take(message, now_ms)
        except ProtocolError:
            self._owed.append(self._decoder.refusal)
            raise

    def _take(self, message: Request | bytes, now_ms: int) -> None:
        if len(self._owed) >= PIPELINED:
            raise self._decoder.fault("too many requests at once", limit="PIPELINED")
        self._owed.append(message)
        if isinstance(message, Request) and message.is_of_logs():
            frame = RequestFrame(message, next(self._tickets), now_ms, self._peer, self._limits)
            self._ready.append(frame)
            self._storing[frame.ticket] = frame

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()
