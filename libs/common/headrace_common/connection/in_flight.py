"""The frames of one connection that Kafka has not stored yet, and their metrics once it has."""

from __future__ import annotations

from collections.abc import Callable

from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.session.interface import Frame, Ticket


class InFlight:
    """Frames by their tickets. `clock`: monotonic seconds."""

    def __init__(self, metrics: ReceiverMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._frames: dict[Ticket, tuple[Frame, float]] = {}  # with the arrival time of each

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: Frame, arrived: float) -> None:
        """Adds a frame that `arrived` at that time."""
        self._frames[frame.ticket] = (frame, arrived)

    def stored(self, ticket: Ticket, events: int, *, answered: bool) -> int:
        """Counts a frame with `events` events as stored; returns its size. `answered`: it can still be acknowledged."""
        frame, arrived = self._frames.pop(ticket)
        self._metrics.ack_seconds.observe(self._clock() - arrived)
        if not frame.acknowledged:
            self._metrics.events_unacknowledgeable.inc(events)
        elif answered:
            self._metrics.events_acknowledged.inc(events)
        return frame.size

    def abandoned(self, ticket: Ticket) -> int:
        """Counts a frame as abandoned and returns its size."""
        self._metrics.frames_abandoned.inc()
        return self._frames.pop(ticket)[0].size
