"""The order in which the requests of one connection about one segment are done.

====================  ============================================================================
a request             waits for those before it that are about the same segment
====================  ============================================================================
appends               changes; `Writer` orders the requests of one writer
changes the segment   appends and changes
reads                 appends and changes, and the read before it
====================  ============================================================================

Nothing else waits for reads: one at the tail may take long.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic

from headrace_segment.questions import ChangeSegment, ReadBytes
from headrace_segment.session.requests import OpenQuestion
from headrace_segment.session.writers import B


class SegmentOrder(Generic[B]):
    """The unfinished requests about one segment, each by its number on the connection; they rise."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, None] = OrderedDict()  # appends and changes
        self._changes: OrderedDict[int, None] = OrderedDict()
        self._held: deque[OpenQuestion[B]] = deque()
        self._reads: deque[OpenQuestion[B]] = deque()
        self.reading = False
        """A read has had its turn, and has no answer yet."""

    def __bool__(self) -> bool:
        """Whether a request is not done."""
        return bool(self._open or self._held or self._reads or self.reading)

    def append(self, number: int) -> None:
        """Queues a request of a writer."""
        self._open[number] = None

    def hold(self, asked: OpenQuestion[B]) -> None:
        """Queues another request. `released` gives it back when its turn has come."""
        if isinstance(asked.question, ChangeSegment):
            self._open[asked.number] = self._changes[asked.number] = None
        self._held.append(asked)

    def may_append(self, number: int) -> bool:
        """Returns whether all changes before it are done."""
        return not self._changes or next(iter(self._changes)) > number

    def done(self, number: int) -> bool:
        """Ends a request that has its answer. Returns whether it was a change."""
        changed = number in self._changes
        for kept in (self._open, self._changes):  # a read is in neither
            kept.pop(number, None)
        return changed

    def released(self) -> Iterator[OpenQuestion[B]]:
        """Yields the requests that wait no more."""
        while self._held and (not self._open or next(iter(self._open)) >= self._held[0].number):
            asked = self._held.popleft()
            if isinstance(asked.question, ReadBytes):
                self._reads.append(asked)
                yield from self._next_read()
            else:
                yield asked
        yield from self._next_read()

    def _next_read(self) -> Iterator[OpenQuestion[B]]:
        if self._reads and not self.reading:
            self.reading = True
            yield self._reads.popleft()
