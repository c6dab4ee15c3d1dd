"""One Lumberjack client's conversation, pure.

A window is acknowledged with the number of its last event, as the client wrote it, when all of it is durable; windows in
order. Meanwhile a v2 client is told how far its oldest window is (a partial acknowledgement), or the same again, or 0, so
that it does not give up. A v1 client takes the first six bytes as full success, whatever they say: it hears one
acknowledgement for each window and nothing else, ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headrace_common.errors import ProtocolError
from headrace_common.inflate import InflateLimits
from headrace_common.session import Frame, Peer, Ticket
from headrace_common.settings import LimitSettings

from headrace_lumberjack.content import Content
from headrace_lumberjack.events import EventsFrame, Records
from headrace_lumberjack.flow import Flow
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import HEADER, V2, Compressed, Cutter, Run, Window, WireLimits, acknowledgement

LOOK: Final = 1.0
"""Seconds between two looks at the clock while a v2 client waits; partial acknowledgements are no more frequent."""

KEEP_ALIVE: Final = 2.9
"""Seconds of silence after which a waiting v2 client hears something. With `LOOK` and a late timer it stays below 5."""

WORK: Final = 1 << 20
"""What one call of `receive` does, in bytes inflated, some milliseconds; the rest waits until others have run."""

ITEM_COST: Final = 1 << 10
"""Bytes inflated that take as long as a frame's or a run's way through the session."""


@dataclass(slots=True)
class _Unit:
    """Data frames that were handed out together. `stored`: how many from the first are durable."""

    count: int
    first: int
    last: int
    stored: int = 0
    whole: bool = False


@dataclass(slots=True)
class _Window:
    """A window that is not acknowledged yet.

    `units` are those not durable as a whole, `stored` the events before them, `mark` the number of the last of these.
    `said`: events that the last partial acknowledgement covered; `seen`: when a tick first saw the window.
    """

    version: int
    missing: int
    units: deque[_Unit] = field(default_factory=deque)
    events: int = 0
    stored: int = 0
    mark: int = 0
    next: int = -1
    steady: bool = True
    zero: bool = False
    said: int = 0
    said_mark: int = 0
    seen: float | None = None

    def take(self, run: Run, unit: _Unit) -> None:
        """More of its events were handed out."""
        self.steady = self.steady and run.steady and self.next in (-1, unit.first)
        self.next = unit.last + 1
        self.zero = self.zero or run.has_zero()
        self.events += unit.count
        self.missing -= unit.count
        self.units.append(unit)

    def progress(self) -> tuple[int, int]:
        """How many events from its beginning are durable, and the number of the last of them."""
        while self.units and self.units[0].whole:
            unit = self.units.popleft()
            self.stored += unit.count
            self.mark = unit.last
        if self.units and self.units[0].stored and self.steady:
            unit = self.units[0]
            return self.stored + unit.stored, unit.first + unit.stored - 1
        return self.stored, self.mark

    def ambiguous(self) -> bool:
        """Whether 0, what a keep-alive says, is the number of one of its events: the client could take it for that one's."""
        return self.zero or self.next + self.missing > 1 << 32


class LumberjackSession:
    """See `headrace_common.session.Session`."""

    def __init__(self, peer: Peer, limits: LimitSettings, lumberjack: LumberjackSection) -> None:
        self._wire = WireLimits(
            limits.frame_bytes,
            lumberjack.window_events,
            lumberjack.pairs,
            lumberjack.key_bytes,
            lumberjack.value_bytes,
        )
        self._inflate = InflateLimits(limits.inflated_bytes, limits.ratio)
        self._records = Records(peer, limits.event_bytes, limits.depth)
        self._cutter = Cutter(self._wire)
        self._content: Content | None = None
        self._flow = Flow()
        self._failed: ProtocolError | None = None
        self._ready: deque[EventsFrame] = deque()
        self._windows: deque[_Window] = deque()  # not acknowledged, in order
        self._units: dict[Ticket, _Unit] = {}
        self._next: Ticket = 0
        self._out = b""
        self._now = -LOOK  # at the last tick
        self._said_at = -KEEP_ALIVE
        self._ended = False
        self._busy = False

    # What decides that an acknowledgement may leave

    def settle(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """The publisher's word. A window is acknowledged when all of it has arrived and every unit of it is durable."""
        unit = self._units[ticket]
        unit.stored = unit.count if whole else min(stored, unit.count - 1)
        unit.whole = whole
        if whole:
            del self._units[ticket]
        self._acknowledge()

    def _acknowledge(self) -> None:
        """The final acknowledgements that are due, in order. W(0) has no event: it is answered 0."""
        while self._windows and not self._ended:
            oldest = self._windows[0]
            stored, mark = oldest.progress()
            if oldest.missing or stored < oldest.events:
                return
            self._windows.popleft()
            self._out += acknowledgement(oldest.version, mark)

    def abandon(self, ticket: Ticket) -> None:
        """The unit stays at its place, never whole: it and all behind it remain unacknowledged, and nothing more is said."""
        self._ended = True

    def outgoing(self) -> bytes:
        """See the seam."""
        out, self._out = self._out, b""
        return out

    # Time: partial acknowledgements and keep-alives

    def deadline(self) -> float | None:
        """In a second, while a v2 client waits for Kafka or has not heard of progress."""
        return None if self._waits() is None else self._now + LOOK

    def _waits(self) -> _Window | None:
        """The oldest window, if its client is to be told something before it is complete."""
        if not self._windows or self._ended:
            return None
        oldest = self._windows[0]
        if oldest.version != V2:
            return None
        stored, _ = oldest.progress()
        return oldest if oldest.units or (oldest.steady and stored > oldest.said) else None

    def tick(self, now: float) -> None:
        """Tells the client of the oldest window's progress, at most once a second; or repeats itself, or says 0.

        Never while it is we who wait for the client, and never a number that could be taken for more than is durable.
        """
        self._now = now
        window = self._waits()
        if window is None:
            return
        if window.seen is None:
            window.seen = now
        silent = now - max(window.seen, self._said_at)
        stored, mark = window.progress()
        if window.steady and stored > window.said:
            if silent >= LOOK:
                window.said, window.said_mark = stored, mark
                self._say(window.said_mark, now)
        elif window.units and silent >= KEEP_ALIVE and (window.said or not window.ambiguous()):
            self._say(window.said_mark, now)

    def farewell(self) -> bytes:
        """How far the window is that will not be complete: its client need not send that part again."""
        if self._windows and not self._ended:
            oldest = self._windows[0]
            stored, mark = oldest.progress()
            if oldest.version == V2 and oldest.steady and stored > oldest.said:
                oldest.said, oldest.said_mark = stored, mark
                return acknowledgement(V2, mark)
        return b""

    def _say(self, number: int, now: float) -> None:
        self._out += acknowledgement(V2, number)
        self._said_at = now

    # Bytes to windows

    def receive(self, data: bytes, now_ms: int) -> None:
        """See the seam."""
        if self._failed is not None:
            raise self._failed
        self._cutter.feed(data)
        try:
            self._advance(now_ms)
        except ProtocolError as error:
            self._failed = error
            self._content, self._busy = None, False
            self._cutter = Cutter(self._wire)
            raise
        finally:
            self._acknowledge()

    def _advance(self, now_ms: int) -> None:
        work = WORK
        while work > 0:
            if self._content is not None:
                work -= self._content.step()
                if self._content.done:
                    # All of it must be accepted before any counts: of a C frame at fault nothing is stored.
                    accepted = [part for item in self._content.items for part in self._flow.accept(item)]
                    self._content = None
                    for part in accepted:
                        self._take(part, now_ms)
                continue
            item = self._cutter.cut()
            if item is None:
                break
            work -= ITEM_COST
            if isinstance(item, Compressed):
                self._content = Content(item, self._wire, self._inflate)
                continue
            for part in self._flow.accept(item):
                self._take(part, now_ms)
        self._busy = work <= 0
        self._cutter.trim()

    def _take(self, item: Window | Run, now_ms: int) -> None:
        if isinstance(item, Window):
            if self._windows and self._windows[-1].missing:  # of v1: it ends where it stands
                self._windows[-1].missing = 0
                if not self._windows[-1].events:
                    self._windows.pop()
            self._windows.append(_Window(item.version, item.count))
            return
        unit = _Unit(len(item), item.sequence(0), item.sequence(len(item) - 1))
        self._windows[-1].take(item, unit)
        self._units[self._next] = unit
        self._ready.append(EventsFrame(item, self._next, now_ms, self._records))
        self._next += 1

    def busy(self) -> bool:
        """See the seam."""
        return self._busy

    def frames(self) -> Iterator[Frame]:
        """See the seam."""
        while self._ready:
            yield self._ready.popleft()

    def eof(self) -> None:
        """See the seam."""
        if self.held():
            error = self._cutter.fault(f"the stream ends inside a {'window' if self._flow.left else 'frame'}")
            if self._flow.left:
                error.offset = self._flow.began
            raise error

    def idle(self) -> bool:
        """See the seam."""
        return not self._windows and not self.held()

    def held(self) -> int:
        """What was not cut, what is being inflated, and a window's header until it is complete: it is then half read."""
        content = 0 if self._content is None else self._content.held()
        return self._cutter.left + content + (HEADER if self._flow.left else 0)

    def unacknowledgeable(self) -> bool:
        """Everything is acknowledged in Lumberjack."""
        return False
