"""One OTLP client's conversation, pure.

===========================  ==============================================================================================
the client sends             we answer, in the order of the requests
===========================  ==============================================================================================
POST /v1/logs                200 when Kafka has all its records, with partial success if some are in quarantine; 400 when
                             quarantine has all of it; 503 and the end if neither is true after OTLP__ANSWER_TIME, at most
                             2 s earlier: what is stored later is the same if the client sends it again
Expect: 100-continue         100, as soon as it is its turn
any other request            404, 405, 415
what has no certain end      400, 411, 413, 431, 501, and the end
===========================  ==============================================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from typing_extensions import override

from headrace_otlp.events import LogsFrame, RefusedFrame, RequestFrame
from headrace_otlp.logs import PROTOBUF
from headrace_otlp.settings import OtlpLimits, OtlpSection
from headrace_otlp.wire import Logs, OtlpDecoder, Refused, Reply, response

TICK: Final = 1.0
"""Seconds between two ticks: a request is first seen by one, and seen to be late by another."""

RETRY_AFTER: Final = 5
"""Seconds that a client is asked to wait then."""

PIPELINED: Final = 1024
"""Answers that may wait for their turn: a client that sends further requests is not served."""


@dataclass(slots=True)
class _Exchange:
    """A request and its answer. `since`: the first tick that found it waiting, in monotonic seconds."""

    frame: RequestFrame | None = None
    answer: bytes = b""
    last: bool = False
    since: float | None = None


class OtlpSession(ByteSession):
    """Requests in, responses out."""

    def __init__(self, peer: Peer, limits: OtlpLimits, own: OtlpSection) -> None:
        self._decoder: OtlpDecoder = OtlpDecoder(limits.frame_bytes, limits.frame_events, limits.inflated_bytes)
        self._peer = peer
        self._limits = limits
        self._wait = own.answer_time - 2 * TICK
        self._tickets = 0
        self._ready: deque[RequestFrame] = deque()
        self._exchanges: deque[_Exchange] = deque()
        self._waiting: dict[Ticket, _Exchange] = {}
        self._now = 0.0  # time of the last `tick`

    # Decides which answers may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            exchange = self._waiting.pop(ticket)
            assert exchange.frame is not None
            exchange.answer, exchange.last = exchange.frame.answer(), exchange.frame.last

    @override
    def outgoing(self) -> bytes:
        """Returns the answers that are due, up to the first request that waits."""
        out = []
        while self._exchanges and self._exchanges[0].answer and not self.over:
            exchange = self._exchanges.popleft()
            out.append(exchange.answer)
            self.over = exchange.last
        return b"".join(out)

    @override
    def deadline(self) -> float | None:
        return self._now + TICK if self._waiting else None

    @override
    def tick(self, now: float) -> None:
        self._now = now
        for exchange in self._waiting.values():
            if exchange.since is None:
                exchange.since = now
        oldest = self._exchanges[0] if self._exchanges else None
        if oldest is None or oldest.frame is None or oldest.answer or oldest.since is None:
            return
        if now >= oldest.since + self._wait:
            oldest.answer, oldest.last = oldest.frame.unavailable(RETRY_AFTER), True

    # Bytes to requests

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        try:
            for message in self._decoder.receive(data):
                self._take(message, now_ms)
        except ProtocolError:
            self._exchanges.append(_Exchange(answer=self._decoder.refusal))
            raise

    def _take(self, message: object, now_ms: int) -> None:
        if len(self._exchanges) >= PIPELINED:
            raise self._decoder.fault("too many requests at once", limit="PIPELINED")
        if isinstance(message, Reply):
            self._exchanges.append(_Exchange(answer=message.answer, last=message.last))
            return
        ticket, limits = self._tickets, self._limits
        if isinstance(message, Logs):
            if not message.count:
                answer = response(
                    200, b"" if message.encoding == PROTOBUF else b"{}", message.encoding, last=message.last
                )
                self._exchanges.append(_Exchange(answer=answer, last=message.last))
                return
            frame: RequestFrame = LogsFrame(message, ticket, now_ms, self._peer, limits.event_bytes, limits.depth)
        else:
            assert isinstance(message, Refused)
            frame = RefusedFrame(message, ticket, now_ms, self._peer)
        self._tickets += 1
        self._ready.append(frame)
        self._waiting[ticket] = _Exchange(frame)
        self._exchanges.append(self._waiting[ticket])

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def eof(self) -> None:
        if self._decoder.partial_bytes():
            raise self._decoder.fault("the stream ends inside a request")

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self._decoder.partial_bytes(), busy=self._decoder.busy)
