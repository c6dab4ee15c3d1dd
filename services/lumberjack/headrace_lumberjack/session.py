"""One Lumberjack client's conversation, pure.

When all events of a window are durable, the session acknowledges the number of its last event, as the client wrote it;
windows in order. Until then, it sends 0 to a v2 client, so that the client does not give up. A v1 client takes any six bytes as
full success, so it gets exactly one acknowledgement for each window.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Final

from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_lumberjack.events import Records, RunFrame
from headrace_lumberjack.fields import BeatsFields
from headrace_lumberjack.identity import PROTOCOL
from headrace_lumberjack.wire import HEADER, V2, FrameRun, LumberjackDecoder, Window, acknowledgement

LOOK: Final = 1.0
"""Seconds between two ticks while a v2 client waits."""

KEEP_ALIVE: Final = 2.9
"""Seconds of silence after which a waiting v2 client gets a 0. With `LOOK` and a late timer, still below 5 s."""

EMPTY_WINDOWS: Final = 256
"""Maximum windows without events that wait for the answers to those before them: nothing else bounds them."""


@dataclass(slots=True)
class _Window:
    """A window that is not acknowledged yet.

    `count`: the events that it announced; `missing`: those that have not come. `storing`: its runs that are not durable yet.
    `last`: the number of its last event that has come; `zero`: whether one of them may have the number 0. `silent`: since when
    its client waits or has heard nothing.
    """

    version: int
    count: int
    missing: int
    storing: int = 0
    last: int = 0
    zero: bool = False
    silent: float | None = None

    def take(self, run: FrameRun) -> None:
        """Adds a run of its events that was handed out."""
        self.missing -= len(run)
        self.storing += 1
        self.last = run.sequence(len(run) - 1)
        self.zero = self.zero or not run.steady or run.sequence(0) == 0

    def ambiguous(self) -> bool:
        """Returns whether one of its events may have the number 0: the client could take a keep-alive for its acknowledgement."""
        return self.zero or self.last + self.missing >= 1 << 32


class LumberjackSession(ByteSession):
    """Windows in, acknowledgements out."""

    window_events: ClassVar[int] = 65_536
    """Maximum events in a window: Beats send up to `bulk_max_size`, which is 2,048 by default."""

    pairs: ClassVar[int] = 1_024
    """Maximum pairs of one v1 event: logstash-forwarder sends four, and those of its configuration."""

    def __init__(self, peer: Peer, limits: LimitSettings, memory: Memory | None = None) -> None:
        """`memory`: that of the service; without it, the session has its own."""
        self._decoder: LumberjackDecoder = LumberjackDecoder(
            limits.frame_bytes, self.window_events, self.pairs, limits.inflated_bytes
        )
        self._records = Records(PROTOCOL, peer, BeatsFields, limits.event_bytes, limits.depth, memory or Memory())
        self._ready: list[Frame] = []
        self._windows: deque[_Window] = deque()  # not acknowledged, in order
        self._empty = 0  # of these, windows without events
        self._tickets = itertools.count()
        self._storing: dict[Ticket, _Window] = {}  # the windows of runs that were handed out
        self._out = bytearray()
        self._now = -LOOK  # at the last tick

    # Decides which acknowledgements may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Acknowledges a window once it has arrived completely and all its runs are durable."""
        if whole:
            self._storing.pop(ticket).storing -= 1
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Writes the acknowledgements that are due, in order. W(0) has no events and gets the answer 0."""
        while self._windows:
            oldest = self._windows[0]
            if oldest.missing or oldest.storing:
                return
            self._windows.popleft()
            self._empty -= not oldest.count
            self._out += acknowledgement(oldest.version, oldest.last)

    @override
    def outgoing(self) -> bytes:
        if not self._out:
            return b""
        out, self._out = self._out, bytearray()
        return bytes(out)

    # Time: keep-alives

    @override
    def deadline(self) -> float | None:
        """Returns the next second, while a v2 client waits for Kafka."""
        return None if self._waits() is None else self._now + LOOK

    def _waits(self) -> _Window | None:
        """Returns the oldest window, if its client needs an answer before the window is complete."""
        if not self._windows:
            return None
        oldest = self._windows[0]
        return oldest if oldest.version == V2 and oldest.storing else None

    @override
    def tick(self, now: float) -> None:
        """Sends 0 where the oldest window's client has heard nothing for `KEEP_ALIVE` seconds.

        Sends nothing while we wait for the client, nor where the client could read it as the acknowledgement of an event.
        """
        self._now = now
        window = self._waits()
        if window is None:
            return
        if window.silent is None:
            window.silent = now
        elif now - window.silent >= KEEP_ALIVE and not window.ambiguous():
            self._out += acknowledgement(V2, 0)
            window.silent = now

    # Bytes to windows

    @override
    def receive(self, data: bytes, now_ms: int) -> None:
        try:
            for item in self._decoder.receive(data):
                if isinstance(item, Window):
                    self._open(item)
                else:
                    ticket, window = next(self._tickets), self._windows[-1]
                    window.take(item)
                    self._storing[ticket] = window
                    self._ready.append(RunFrame(item, ticket, now_ms, self._records))
        finally:
            self._acknowledge()

    def _open(self, item: Window) -> None:
        if self._windows and (ended := self._windows[-1]).missing:  # v1: the open window ends early
            if ended.missing == ended.count:
                self._windows.pop()
            ended.missing = 0
        self._empty += not item.count
        if self._empty > EMPTY_WINDOWS:
            raise self._decoder.fault(f"more than {EMPTY_WINDOWS} windows without events wait for an answer")
        self._windows.append(_Window(item.version, item.count, item.count))

    @override
    def eof(self) -> None:
        window, partial = self._decoder.window, self._decoder.partial_bytes()
        if partial or window.left:
            raise self._decoder.fault(f"the stream ends inside a {'frame' if partial else 'window'}")

    @override
    def status(self) -> Status:
        """Of an incomplete window, its header counts as half a frame."""
        partial_bytes = self._decoder.partial_bytes() + (HEADER if self._decoder.window.left else 0)
        return Status(partial_bytes=partial_bytes, busy=self._decoder.busy)
