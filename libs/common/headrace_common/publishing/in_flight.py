"""Frames on their way to one partition: how their events are made, and which is next."""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from headrace_common.fairness.scheduler import Account, Scheduler
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import Log
from headrace_common.record.event import Part, Reject
from headrace_common.session.interface import SMALL_PARTS, Frame, Run, Ticket

NO_DEADLINE: Final = float("inf")
"""The deadline of a frame that is held until it is stored."""

LOOK_PARTS: Final = 8
"""Parts that are made between two looks at the clock."""

LARGE: Final = 1 << 10
"""Bytes of an event from which the clock is looked at after each event."""


class DeliveryListener(ABC):
    """Learns the outcome of a frame. Its methods must not block or raise."""

    account: Account
    """The CPU time that its frames have used."""

    @abstractmethod
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Learns that the first `stored` parts of the frame are durable. `whole`: these are all; no further call follows."""

    @abstractmethod
    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """Learns that the frame will not be stored. No further call follows."""


class InFlightFrame:
    """A frame on its way to Kafka. Times are those of the event loop, in seconds."""

    __slots__ = (
        "abandoned",
        "account",
        "built",
        "deadline",
        "exhausted",
        "frame",
        "grown",
        "kept",
        "listener",
        "made",
        "received_ms",
        "reserved",
        "runs",
        "small",
        "submitted",
        "ticket",
        "waits",
    )  # fmt: skip

    def __init__(self, frame: Frame, listener: DeliveryListener, submitted: float, deadline: float) -> None:
        """`deadline`: when the frame is abandoned; `NO_DEADLINE`: never."""
        self.frame = frame  # until all of its parts are made: see `finish`
        self.ticket, self.kept = frame.ticket, frame.kept
        self.listener, self.account = listener, listener.account
        self.submitted = submitted
        self.received_ms = frame.received_ms  # the time of its records
        self.deadline = deadline
        self.small = frame.small
        self.runs: Iterator[Run] | None = None  # that are left to make, once begun
        self.made: list[Part] = []  # built, but not in a batch yet
        self.built = 0  # parts added to batches so far, over all cycles
        self.exhausted = False  # all parts are made
        self.abandoned = False
        self.waits = False  # for memory
        self.grown = self.reserved = 0

    def make_all(self, log: Log) -> bool:
        """Makes all parts of a small frame. Returns False if it takes more work than its size suggests: it is not small then, and
        keeps what is made.
        """
        made, runs = self.made, self.frame.runs()
        try:
            for part in runs:
                if isinstance(part, list):
                    made += part
                elif not isinstance(part, int):
                    made.append(part)
                if isinstance(part, int) or len(made) > SMALL_PARTS:
                    self.small, self.runs = False, runs
                    return False
        except Exception as error:
            made.append(self._spoiled(error, log))
        self.exhausted = True  # it is small, and keeps what it has
        return True

    def make(
        self, until: float, clock: Callable[[], float], may_grow: Callable[[InFlightFrame], bool], log: Log
    ) -> bool:
        """Makes some of its next parts, until the time `until` at most, and notes if there are no more. Returns False if it has
        to wait for memory: it starts over then, and holds nothing.
        """
        if self.exhausted:
            return True
        if self.runs is None:
            self.runs = self.frame.runs()
        made, before = self.made, len(self.made)
        try:
            for part in self.runs:
                if isinstance(part, int):
                    self.grown += part
                    if part and not may_grow(self):
                        self.runs, self.grown = None, 0
                        return False
                    if clock() >= until:
                        return True
                    continue
                if isinstance(part, list):
                    made += part
                else:
                    made.append(part)
                if len(made) - before >= LOOK_PARTS or isinstance(part, list) or len(part) >= LARGE:
                    return True
        except Exception as error:
            made.append(self._spoiled(error, log))  # after the parts that were made before
        self.finish()
        return True

    def _spoiled(self, error: Exception, log: Log) -> Reject:
        """Returns the whole frame, as received, as what replaces its remaining parts after a bug in Headrace."""
        log.exception("building a frame's events failed", ticket=self.ticket)
        return self.frame.spoiled(f"{type(error).__name__}: {error}")

    def finish(self) -> None:
        """Notes that there are no more parts, and drops the bytes of the message: the frame may wait for Kafka for minutes."""
        if not self.exhausted:
            self.exhausted, self.runs = True, None
            del self.frame


class FrameQueue:
    """The frames that wait for a partition, those of each connection in order: the first is in one of two lines, the others
    behind it. So one small frame of each connection is taken at a time.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._behind: dict[Account, deque[InFlightFrame]] = {}
        self._small: deque[InFlightFrame] = deque()
        self._long: list[tuple[float, int, int, InFlightFrame]] = []  # a heap, by their accounts' rank
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._small or self._long)

    def add(self, frame: InFlightFrame) -> None:
        """Queues a frame after the other frames of its connection."""
        behind = self._behind.get(frame.account)
        if behind is None:
            self._behind[frame.account] = deque()
            self.enter(frame)
        else:
            behind.append(frame)

    def enter(self, frame: InFlightFrame, *, rested: bool = True) -> None:
        """Queues a frame that is the first of its connection, as one that has come now. `rested`: see `Scheduler.enter`."""
        if frame.small:
            self._small.append(frame)
        else:
            self._scheduler.enter(frame.account, rested=rested)
            self.put(frame)

    def put(self, frame: InFlightFrame) -> None:
        """Queues a frame that is the first of its connection."""
        if frame.small:
            self._small.append(frame)
        else:
            heapq.heappush(self._long, (*self._scheduler.rank(frame.account), next(self._numbers), frame))

    def small(self) -> InFlightFrame | None:
        """Returns the small frame that has come first."""
        while self._small:
            if not (frame := self._small[0]).abandoned:
                return frame
            self.done(self._small.popleft())
        return None

    def long(self) -> InFlightFrame | None:
        """Returns the frame, of those that are not small, whose connection has used the least CPU time."""
        while self._long:
            if not (frame := self._long[0][-1]).abandoned:
                return frame
            self.done(heapq.heappop(self._long)[-1])
        return None

    def take_small(self) -> None:
        """Removes the frame that `small` returns. It is the first of its connection until `done` is called for it."""
        self._small.popleft()

    def take_long(self) -> None:
        """Removes the frame that `long` returns, like `take_small`."""
        heapq.heappop(self._long)

    def done(self, frame: InFlightFrame) -> None:
        """Queues the next frame of a connection whose first one is not in a line any more."""
        behind = self._behind[frame.account]
        while behind:
            if not (following := behind.popleft()).abandoned:
                self.put(following)
                return
        del self._behind[frame.account]

    def drop_abandoned(self) -> None:
        """Removes the frames that were abandoned, which would else be held until their turn comes."""
        gone = [frame for frame in (*self._small, *(entry[-1] for entry in self._long)) if frame.abandoned]
        self._small = deque(frame for frame in self._small if not frame.abandoned)
        self._long = [entry for entry in self._long if not entry[-1].abandoned]
        heapq.heapify(self._long)
        for frame in gone:
            self.done(frame)
