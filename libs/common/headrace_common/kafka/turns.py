"""Whose batch a broker would be sent at once.

aiokafka has one request under way for each broker. A batch that is handed to it meanwhile waits, and so does all that comes
behind it in its partition: for that request, and for its own. Who fills the batch until then sends more with it, no later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """The batches of one producer that have no answer yet, by broker. Make it inside a running event loop."""

    def __init__(self) -> None:
        self._under_way: dict[int, set[object]] = {}
        self._next: dict[int, asyncio.Future[None]] = {}

    @contextmanager
    def taken(self, broker: int) -> Iterator[None]:
        """A batch is under way to `broker` inside the block."""
        batch = object()
        self._under_way.setdefault(broker, set()).add(batch)
        try:
            yield
        finally:
            self._under_way.get(broker, set()).discard(batch)
            self._answered(broker)

    def next(self, broker: int) -> asyncio.Future[None] | None:
        """Is done when `broker` has answered something that is under way. None: nothing is, a batch leaves at once."""
        if not self._under_way.get(broker):
            return None
        if broker not in self._next:
            self._next[broker] = asyncio.get_running_loop().create_future()
        return self._next[broker]

    def begin_anew(self) -> None:
        """The producer is another one: nothing is under way."""
        self._under_way.clear()
        for broker in list(self._next):
            self._answered(broker)

    def _answered(self, broker: int) -> None:
        if (heard := self._next.pop(broker, None)) is not None and not heard.done():
            heard.set_result(None)
