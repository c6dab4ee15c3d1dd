"""One OTLP client's conversation, pure: requests are answered in their order, one of logs when Kafka has all its records.

Only while Kafka is away for long is a client told to send again: an SDK gives up what it would send after its timeout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
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

RETRY_AFTER: Final = "5"
"""Seconds until a client may send again what was not stored."""


class OtlpSession(ByteSession):
    """Requests in, responses out. `problems`: why Kafka can take nothing now; empty if it can."""

    def __init__(self, peer: Peer, limits: LimitSettings, problems: Callable[[], list[str]] = list) -> None:
        self._decoder: OtlpDecoder = OtlpDecoder(limits.frame_bytes)
        self._peer = peer
        self._limits = limits
        self._problems = problems
        self._tickets = count()
        self._ready: list[Frame] = []
        self._storing: dict[Ticket, RequestFrame] = {}
        self._owed: deque[Request | bytes] = deque()

    # Decides which answers may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            self._storing.pop(ticket).answer()

    @override
    def outgoing(self) -> bytes:
        """Returns the answer to the oldest request, if it is known."""
        oldest = self._owed[0] if self._owed and not self.over else b""
        answer = oldest.answer if isinstance(oldest, Request) else oldest
        if answer:
            self.over = isinstance(oldest, Request) and oldest.last
            self._owed.popleft()
        return answer

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
        if not isinstance(message, Request) or not message.is_of_logs():
            return
        if self._problems():
            message.fail(503, "Kafka takes nothing now", ("Retry-After", RETRY_AFTER), ("Connection", "close"))
        else:
            frame = RequestFrame(message, next(self._tickets), now_ms, self._peer, self._limits)
            self._ready.append(frame)
            self._storing[frame.ticket] = frame
