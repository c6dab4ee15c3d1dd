"""Frames on their way to one partition: how their events are made, which is next, and which may grow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import Log
from headrace_common.record.event import Part
from headrace_common.session.interface import SMALL_PARTS, Frame, Run, Ticket

NO_DEADLINE: Final = float("inf")
"""The deadline of a frame that is held until it is stored."""

LOOK_PARTS: Final = 8
"""Parts that are made between two looks at the clock."""

LARGE: Final = 1 << 10
"""Bytes of an event from which the clock is looked at after each event."""


class DeliveryListener(ABC):
    """Learns the outcome of a frame. Its methods must not block or raise."""

    @abstractmethod
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Learns that the first `stored` parts of the frame are durable. `whole`: these are all; no further call follows."""

    @abstractmethod
    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """Learns that the frame will not be stored. No further call follows."""


class InFlightFrame:
    """A frame on its way to Kafka. Times are those of the event loop, in seconds."""

    __slots__ = (
        "abandoned", "built", "deadline", "exhausted", "frame", "grown", "listener", "made", "received_ms",
        "reserved", "runs", "small", "submitted", "ticket", "waits",
    )  # fmt: skip

    def __init__(self, frame: Frame, listener: DeliveryListener, submitted: float, deadline: float) -> None:
        """`deadline`: when the frame is abandoned; `NO_DEADLINE`: never."""
        self.ticket = frame.ticket
        self.listener = listener
        self.submitted = submitted
        self.received_ms = frame.received_ms  # the time of its records
        self.deadline = deadline
        self.small = frame.small
        self.runs: Iterator[Run] | None = None  # that are left to make, once begun
        self.made: list[Part] = frame.made or []  # built, but not in a batch yet
        self.built = 0  # parts added to batches so far, over all cycles
        self.exhausted = bool(frame.made)  # all parts are made
        if not self.exhausted:
            self.frame = frame  # see `finish`
        self.abandoned = False
        self.waits = False  # for memory
        self.grown = 0
        """Bytes by which it has grown."""
        self.reserved = 0
        """Bytes of these that `Growth` counts."""

    def make(
        self, until: float, clock: Callable[[], float], may_grow: Callable[[InFlightFrame], bool], log: Log
    ) -> bool:
        """Makes some of its next parts, until the time `until` at most, and notes if there are no more: of a small frame all. One
        that takes more work than its size suggests is not small from then on. Returns False if it has to wait for memory: it
        starts over then, and holds nothing.
        """
        if self.exhausted:
            return True
        made, most = self.made, len(self.made) + (SMALL_PARTS if self.small else LOOK_PARTS)
        try:
            if self.runs is None:
                self.runs = self.frame.runs()
            for part in self.runs:
                if isinstance(part, list):
                    made += part
                    is_much = True
                elif isinstance(part, int):
                    self.small = False
                    self.grown += part
                    if part and not may_grow(self):
                        self.runs, self.grown = None, 0
                        return False
                    if clock() >= until:
                        return True
                    continue
                else:
                    made.append(part)
                    is_much = len(part) >= LARGE
                if len(made) > most or (is_much and not self.small):
                    self.small = False
                    return True
        except Exception as error:  # the whole frame, as received, takes the place of its remaining parts
            log.exception("building a frame's events failed", ticket=self.ticket)
            made.append(self.frame.spoiled(f"{type(error).__name__}: {error}"))
        self.finish()
        return True

    def finish(self) -> None:
        """Notes that there are no more parts, and drops the bytes of the message: the frame may wait for Kafka for minutes."""
        if not self.exhausted:
            self.exhausted, self.runs = True, None
            del self.frame


class FrameQueue:
    """The frames that wait for a partition, those of each connection in order: the first is in the line of its lane, the others
    behind it. So one frame of each connection is taken at a time, in turn.
    """

    def __init__(self) -> None:
        self._behind: dict[DeliveryListener, deque[InFlightFrame]] = {}
        self.small: deque[InFlightFrame] = deque()
        self.long: deque[InFlightFrame] = deque()

    def __bool__(self) -> bool:
        return bool(self.small or self.long)

    def has(self, listener: DeliveryListener) -> bool:
        """Returns whether a frame of a connection waits, for its turn or for memory."""
        return listener in self._behind

    def add(self, frame: InFlightFrame) -> None:
        """Queues a frame after the other frames of its connection."""
        behind = self._behind.get(frame.listener)
        if behind is None:
            self._behind[frame.listener] = deque()
            self.put(frame)
        else:
            behind.append(frame)

    def put(self, frame: InFlightFrame) -> None:
        """Queues a frame that is the first of its connection."""
        (self.small if frame.small else self.long).append(frame)

    def done(self, frame: InFlightFrame) -> None:
        """Queues the next frame of a connection whose first one has left its line for good."""
        behind = self._behind[frame.listener]
        if behind:
            self.put(behind.popleft())
        else:
            del self._behind[frame.listener]

    def drop_abandoned(self) -> None:
        """Removes the frames that were abandoned, which would else be held until their turn comes."""
        for behind in self._behind.values():
            living = [frame for frame in behind if not frame.abandoned]
            behind.clear()
            behind.extend(living)
        first = [*self.small, *self.long]
        self.small.clear()
        self.long.clear()
        for frame in first:
            if frame.abandoned:
                self.done(frame)
            else:
                self.put(frame)


class Growth:
    """The growth budget: room for one frame of any size, and the rest for those that fit there. One that does not gives up what
    it has grown to, and starts over when that room is its own, until it is stored. Those that wait for it have it in turn.
    """

    def __init__(self, size: int, most: int) -> None:
        """`most`: the maximum growth of one frame; `size`: the budget of all frames. Both in bytes."""
        self._shared = size - most
        self._alone: InFlightFrame | None = None  # has the room for any size
        self._waiting: deque[tuple[InFlightFrame, Callable[[], None]]] = deque()
        self.used = 0

    def reserve(self, frame: InFlightFrame, go_on: Callable[[], None]) -> bool:
        """Returns whether `frame` may hold the bytes to which it has grown. If not, `go_on` is called when it may start over."""
        others = self.used - frame.reserved
        beside = others - (self._alone.reserved if self._alone else 0)
        if frame is not self._alone and beside + frame.grown > self._shared:
            if self._alone is not None:
                self.release(frame)
                self._waiting.append((frame, go_on))
                return False
            self._alone = frame
        self.used, frame.reserved = others + frame.grown, frame.grown
        return True

    def release(self, frame: InFlightFrame) -> None:
        """Gives back what `frame` holds: the room for any size to the next frame that waits for it."""
        self.used -= frame.reserved
        frame.reserved = 0
        if frame is not self._alone:
            return
        self._alone = None
        while self._alone is None and self._waiting:
            first, go_on = self._waiting.popleft()
            if not first.abandoned:
                self._alone = first
                go_on()
