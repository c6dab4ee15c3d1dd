"""What a client sends again on the same connection: counted, not withheld."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from prometheus_client import Counter

from headrace_common.event import DETERMINISTIC, Event, event_id
from headrace_common.session import Ticket

REMEMBERED: Final = 256
"""Frames of one connection whose first id is remembered."""


class Resends:
    """Recognises frames by the id of their first event, where that is deterministic."""

    def __init__(self, duplicates: Counter) -> None:
        self._duplicates = duplicates
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._first: dict[Ticket, bytes] = {}

    def began(self, ticket: Ticket, event: Event) -> None:
        """The frame's first event was made."""
        first = event_id(event)
        if first.startswith(DETERMINISTIC):
            self._first[ticket] = first

    def stored(self, ticket: Ticket, events: int) -> None:
        """The frame and so many events are stored."""
        first = self._first.pop(ticket, None)
        if first is None:
            return
        if first in self._seen:
            self._duplicates.inc(events)
        self._seen[first] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def abandoned(self, ticket: Ticket) -> None:
        """The frame will not be stored."""
        self._first.pop(ticket, None)
