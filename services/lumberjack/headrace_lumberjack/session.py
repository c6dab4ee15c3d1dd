"""One Lumberjack client's conversation, pure.

When all events of a window are durable, the session acknowledges the number of its last event, as the client wrote it;
windows in order. Until then, it sends 0 to a v2 client, so that the client does not give up. A v1 client takes any six bytes as
full success, so it gets exactly one acknowledgement for each window.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.inflate import InflateLimits
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_lumberjack.content import Content
from headrace_lumberjack.events import EventsFrame, Records
from headrace_lumberjack.flow import OpenWindow
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import HEADER, V2, CompressedFrame, Cutter, FrameRun, Window, WireLimits, acknowledgement

LOOK: Final = 1.0
"""Seconds between two ticks while a v2 client waits."""

KEEP_ALIVE: Final = 2.9
"""Seconds of silence after which a waiting v2 client gets a 0. With `LOOK` and a late timer, still below 5 s."""

WORK: Final = 1 << 20
"""The work of one call of `receive`, as inflated bytes: a few milliseconds. The rest waits until others have run."""

ITEM_COST: Final = 4 << 10
"""The cost of one frame or run in the session, as inflated bytes that take as long."""


EMPTY_WINDOWS: Final = 4096
"""Maximum windows without events that wait for the answers to those before them: nothing else bounds them."""


@dataclass(slots=True)
class _Window:
    """A window that is not acknowledged yet.

    `count`: the events that it announced; `missing`: those that have not come. `storing`: its runs that are not durable yet.
    `last`: the number of its last event that has come; `zero`: whether one of them has the number 0. `silent`: since when its
    client waits or has heard nothing. `answers`: how many windows it acknowledges, all without events.
    """

    version: int
    count: int
    missing: int
    storing: int = 0
    last: int = 0
    zero: bool = False
    silent: float | None = None
    answers: int = 1

    def take(self, run: FrameRun) -> None:
        """Adds a run of its events that was handed out."""
        self.missing -= len(run)
        self.storing += 1
        self.last = run.sequence(len(run) - 1)
        self.zero = self.zero or run.has_zero()

    def ambiguous(self) -> bool:
        """Returns whether one of its events may have the number 0: the client could take a keep-alive for its acknowledgement."""
        return self.zero or self.last + self.missing >= 1 << 32


def wire_limits(limits: LimitSettings, own: LumberjackSection) -> WireLimits:
    """Returns the limits of one frame, by the settings."""
    return WireLimits(limits.frame_bytes, own.window_events, own.pairs, own.key_bytes, own.value_bytes)


class LumberjackSession(ByteSession):
    """Windows in, acknowledgements out."""

    def __init__(
        self, peer: Peer, limits: LimitSettings, lumberjack: LumberjackSection, memory: Memory | None = None
    ) -> None:
        """`memory`: that of the service; without it, the session has its own."""
        self._wire = wire_limits(limits, lumberjack)
        self._inflate = InflateLimits(limits.inflated_bytes, limits.ratio)
        self._records = Records(peer, limits.event_bytes, limits.depth, memory or Memory())
        self._cutter = Cutter(self._wire)
        self._content: Content | None = None
        self._parts: Iterator[Window | FrameRun] | None = None  # accepted, not taken
        self._parts_bytes = 0
        self._flow = OpenWindow()
        self._failed: ProtocolError | None = None
        self._ready: deque[EventsFrame] = deque()
        self._windows: deque[_Window] = deque()  # not acknowledged, in order
        self._empty = 0  # of these, windows without events
        self._tickets = itertools.count()
        self._storing: dict[Ticket, _Window] = {}  # the windows of runs that were handed out
        self._out = bytearray()
        self._now = -LOOK  # at the last tick
        self._ended = False
        self._busy = False

    # Decides which acknowledgements may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Acknowledges a window once it has arrived completely and all its runs are durable."""
        if whole:
            self._storing.pop(ticket).storing -= 1
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Writes the acknowledgements that are due, in order. W(0) has no events and gets the answer 0."""
        while self._windows and not self._ended:
            oldest = self._windows[0]
            if oldest.missing or oldest.storing:
                return
            self._windows.popleft()
            self._empty -= 0 if oldest.count else oldest.answers
            self._out += acknowledgement(oldest.version, oldest.last) * oldest.answers

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Acknowledges no more, and sends no more keep-alives."""
        self._ended = True

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
        if not self._windows or self._ended:
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
        if self._failed is not None:
            raise self._failed
        self._cutter.feed(data)
        try:
            self._advance(now_ms)
        except ProtocolError as error:
            self._failed = error
            self._content, self._parts, self._parts_bytes, self._busy = None, None, 0, False
            self._cutter = Cutter(self._wire)
            raise
        finally:
            self._acknowledge()

    def _advance(self, now_ms: int) -> None:
        work = WORK
        while work > 0:
            if self._parts is not None:
                part = next(self._parts, None)
                if part is None:
                    self._parts, self._parts_bytes = None, 0
                    continue
                work -= ITEM_COST
                self._take(part, now_ms)
                continue
            if self._content is not None:
                work -= self._content.step()
                if self._content.done:
                    # Only now, with all of it accepted, may any count: nothing of a faulty C frame may be stored.
                    self._flow = self._content.flow or self._flow
                    self._expect(self._content.items)
                    self._content = None
                continue
            item = self._cutter.cut()
            if item is None:
                break
            if isinstance(item, CompressedFrame):
                work -= ITEM_COST
                self._content = Content(item, self._wire, self._inflate, self._flow)
            else:
                self._expect((item,), self._flow.accept(item))
        self._busy = work <= 0
        self._cutter.trim()

    def _expect(self, items: Iterable[Window | FrameRun], parts: Iterator[Window | FrameRun] | None = None) -> None:
        """Learns that items have been accepted, as `parts`: they are taken one by one, since each opens a window or becomes a
        frame.
        """
        self._parts = iter(items) if parts is None else parts
        self._parts_bytes = sum(item.size for item in items if isinstance(item, FrameRun))

    def _take(self, item: Window | FrameRun, now_ms: int) -> None:
        if isinstance(item, Window):
            if self._windows and (ended := self._windows[-1]).missing:  # v1: the open window ends early
                if ended.missing == ended.count:
                    self._windows.pop()
                ended.missing = 0
            if not item.count:
                self._take_empty(item)
            else:
                self._windows.append(_Window(item.version, item.count, item.count))
            return
        self._parts_bytes -= item.size
        ticket, window = next(self._tickets), self._windows[-1]
        window.take(item)
        self._storing[ticket] = window
        self._ready.append(EventsFrame(item, ticket, now_ms, self._records))

    def _take_empty(self, item: Window) -> None:
        """Takes a window without events, which gets the answer 0 in its turn. Successive ones share an entry."""
        self._empty += 1
        if self._empty > EMPTY_WINDOWS:
            raise ProtocolError(
                f"more than {EMPTY_WINDOWS} windows without events wait for an answer", offset=item.offset
            )
        last = self._windows[-1] if self._windows else None
        if last is not None and not last.count and last.version == item.version:
            last.answers += 1
        else:
            self._windows.append(_Window(item.version, 0, 0))

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def eof(self) -> None:
        if self._partial_bytes():
            error = self._cutter.fault(f"the stream ends inside a {'window' if self._flow.left else 'frame'}")
            if self._flow.left:
                error.offset = self._flow.began
            raise error

    @override
    def status(self) -> Status:
        partial_bytes = self._partial_bytes()
        return Status(partial_bytes=partial_bytes, busy=self._busy, idle=not (partial_bytes or self._windows))

    def _partial_bytes(self) -> int:
        """Counts uncut bytes, content that is being inflated, accepted events that are not taken yet, and the header of an
        incomplete window, which counts as half a frame.
        """
        content = 0 if self._content is None else self._content.partial_bytes()
        return self._cutter.left + content + self._parts_bytes + (HEADER if self._flow.left else 0)
