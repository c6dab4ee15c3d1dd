"""One Lumberjack client's conversation, pure.

When all events of a window are durable, the session acknowledges the number of its last event, as the client wrote it;
windows in order. Until then, it sends a v2 client the progress of its oldest window (a partial acknowledgement), or repeats
the last number, or sends 0, so that the client does not give up. A v1 client takes any six bytes as full success, so it gets
exactly one acknowledgement for each window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.inflate import InflateLimits
from headrace_common.session.interface import ByteSession, Frame, Peer, Status, Ticket
from headrace_common.session.ledger import Ledger, LedgerEntry
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_lumberjack.content import Content
from headrace_lumberjack.events import EventsFrame, Records
from headrace_lumberjack.flow import OpenWindow
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import HEADER, V2, CompressedFrame, Cutter, FrameRun, Window, WireLimits, acknowledgement

LOOK: Final = 1.0
"""Seconds between two ticks while a v2 client waits. Partial acknowledgements are not more frequent."""

KEEP_ALIVE: Final = 2.9
"""Seconds of silence after which a waiting v2 client gets an answer. With `LOOK` and a late timer, still below 5 s."""

WORK: Final = 1 << 20
"""The work of one call of `receive`, as inflated bytes: a few milliseconds. The rest waits until others have run."""

ITEM_COST: Final = 4 << 10
"""The cost of one frame or run in the session, as inflated bytes that take as long."""


EMPTY_WINDOWS: Final = 4096
"""Maximum windows without events that wait for the answers to those before them: nothing else bounds them."""


@dataclass(slots=True)
class _Unit:
    """Data frames handed out together: how many, and the numbers of the first and the last."""

    count: int
    first: int
    last: int


@dataclass(slots=True)
class _Window:
    """A window that is not acknowledged yet.

    `units`: those not fully durable; `stored`: the events before them; `mark`: the number of the last stored event. `reported`:
    events that the last partial acknowledgement covered; `seen`: the first tick after the window opened. `answers`: how many
    windows it acknowledges, all without events.
    """

    version: int
    missing: int
    units: deque[LedgerEntry[_Unit]] = field(default_factory=deque)
    events: int = 0
    stored: int = 0
    mark: int = 0
    next: int = -1
    steady: bool = True
    zero: bool = False
    reported: int = 0
    reported_mark: int = 0
    seen: float | None = None
    answers: int = 1

    def take(self, run: FrameRun, entry: LedgerEntry[_Unit]) -> None:
        """Adds a run of its events that was handed out."""
        unit = entry.note
        self.steady = self.steady and run.steady and self.next in (-1, unit.first)
        self.next = unit.last + 1
        self.zero = self.zero or run.has_zero()
        self.events += unit.count
        self.missing -= unit.count
        self.units.append(entry)

    def progress(self) -> tuple[int, int]:
        """Returns how many of its first events are durable, and the number of the last of these."""
        while self.units and self.units[0].whole:
            unit = self.units.popleft().note
            self.stored += unit.count
            self.mark = unit.last
        if self.units and self.steady:
            # Parts are events, except that the last part may hold many: only `whole` covers that one.
            unit = self.units[0].note
            stored = min(self.units[0].stored, unit.count - 1)
            if stored:
                return self.stored + stored, unit.first + stored - 1
        return self.stored, self.mark

    def ambiguous(self) -> bool:
        """Returns whether one of its events has the number 0: the client could take a keep-alive for its acknowledgement."""
        return self.zero or self.next + self.missing > 1 << 32


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
        self._units: Ledger[_Unit] = Ledger()
        self._out = bytearray()
        self._now = -LOOK  # at the last tick
        self._said_at = -KEEP_ALIVE
        self._ended = False
        self._busy = False

    # Decides which acknowledgements may leave

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Acknowledges a window once it has arrived completely and all its units are durable."""
        self._units.stored(ticket, stored, whole)
        while self._units.pop_whole() is not None:
            pass
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Writes the final acknowledgements that are due, in order. W(0) has no events and gets the answer 0."""
        while self._windows and not self._ended:
            oldest = self._windows[0]
            stored, mark = oldest.progress()
            if oldest.missing or stored < oldest.events:
                return
            self._windows.popleft()
            self._empty -= 0 if oldest.events else oldest.answers
            self._out += acknowledgement(oldest.version, mark) * oldest.answers

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Acknowledges no more: the unit stays in its place and never becomes whole. Sends no keep-alive for it or those after
        it.
        """
        self._ended = True

    @override
    def outgoing(self) -> bytes:
        if not self._out:
            return b""
        out, self._out = self._out, bytearray()
        return bytes(out)

    # Time: partial acknowledgements and keep-alives

    @override
    def deadline(self) -> float | None:
        """Returns the next second, while a v2 client waits for Kafka or does not know the latest progress."""
        return None if self._waits() is None else self._now + LOOK

    def _waits(self) -> _Window | None:
        """Returns the oldest window, if its client needs an answer before the window is complete."""
        if not self._windows or self._ended:
            return None
        oldest = self._windows[0]
        if oldest.version != V2:
            return None
        stored, _ = oldest.progress()
        return oldest if oldest.units or (oldest.steady and stored > oldest.reported) else None

    @override
    def tick(self, now: float) -> None:
        """Sends the oldest window's progress, at most once a second, or repeats the last number, or sends 0.

        Sends nothing while we wait for the client, and never a number that could be read as more than is durable.
        """
        self._now = now
        window = self._waits()
        if window is None:
            return
        if window.seen is None:
            window.seen = now
        silent = now - max(window.seen, self._said_at)
        stored, mark = window.progress()
        if window.steady and stored > window.reported:
            if silent >= LOOK:
                window.reported, window.reported_mark = stored, mark
                self._reply(window.reported_mark, now)
        elif window.units and silent >= KEEP_ALIVE and (window.reported or not window.ambiguous()):
            self._reply(window.reported_mark, now)

    @override
    def farewell(self) -> bytes:
        """Sends the progress of the window that stays incomplete: the client need not send that part again."""
        if self._windows and not self._ended:
            oldest = self._windows[0]
            stored, mark = oldest.progress()
            if oldest.version == V2 and oldest.steady and stored > oldest.reported:
                oldest.reported, oldest.reported_mark = stored, mark
                return acknowledgement(V2, mark)
        return b""

    def _reply(self, number: int, now: float) -> None:
        self._out += acknowledgement(V2, number)
        self._said_at = now

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
            if self._windows and self._windows[-1].missing:  # v1: the open window ends early
                self._windows[-1].missing = 0
                if not self._windows[-1].events:
                    self._windows.pop()
            if not item.count:
                self._take_empty(item)
            else:
                self._windows.append(_Window(item.version, item.count))
            return
        self._parts_bytes -= item.size
        ticket = self._units.add(_Unit(len(item), item.sequence(0), item.sequence(len(item) - 1)))
        self._windows[-1].take(item, self._units.newest())
        self._ready.append(EventsFrame(item, ticket, now_ms, self._records))

    def _take_empty(self, item: Window) -> None:
        """Takes a window without events, which gets the answer 0 in its turn. Successive ones share an entry."""
        self._empty += 1
        if self._empty > EMPTY_WINDOWS:
            raise ProtocolError(
                f"more than {EMPTY_WINDOWS} windows without events wait for an answer", offset=item.offset
            )
        last = self._windows[-1] if self._windows else None
        if last is not None and not last.events and last.version == item.version:
            last.answers += 1
        else:
            self._windows.append(_Window(item.version, 0))

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
