"""The frames of one connection that Kafka has not stored yet, and what is measured of them when it has."""

from __future__ import annotations

from collections.abc import Callable

from headrace_common.metrics import ReceiverMetrics
from headrace_common.resends import Resends
from headrace_common.session import Frame, Ticket


class Unstored:
    """Frames by their tickets. `clock`: monotonic seconds."""

    def __init__(self, metrics: ReceiverMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._frames: dict[Ticket, tuple[Frame, float]] = {}  # and when each arrived
        self._resends = Resends(metrics.events_duplicate)
        self.began = self._resends.began

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: Frame, arrived: float) -> None:
        """A frame that arrived at that time."""
        self._frames[frame.ticket] = (frame, arrived)

    def stored(self, ticket: Ticket, events: int, *, answered: bool) -> int:
        """All of it and so many events are stored. Its size. `answered`: its acknowledgement can still be written."""
        frame, arrived = self._frames.pop(ticket)
        self._metrics.ack_seconds.observe(self._clock() - arrived)
        if not frame.acknowledged:
            self._metrics.events_unacknowledgeable.inc(events)
        elif answered:
            self._metrics.events_acknowledged.inc(events)
        self._resends.stored(ticket, events)
        return frame.size

    def abandoned(self, ticket: Ticket) -> int:
        """It will not be stored. Its size."""
        self._metrics.frames_abandoned.inc()
        self._resends.abandoned(ticket)
        return self._frames.pop(ticket)[0].size
