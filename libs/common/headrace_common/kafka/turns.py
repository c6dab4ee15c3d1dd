"""Tracks the brokers that have a batch of ours: the next one grows until they have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka.structs import TopicPartition


class Turns:
    """The batches of one producer that have no answer yet, by broker. Make it inside a running event loop.

    aiokafka has one request under way for each broker. A batch that is handed to it meanwhile waits for that request, then for
    its own, and so does the rest of its partition. Filling the batch until then sends more with it, no later.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, set[UnderWay]] = {}
        self._next: dict[int, asyncio.Future[None]] = {}

    def taken(self, broker: int, where: TopicPartition) -> UnderWay:
        """Counts a batch for `where` as under way to `broker` inside the block."""
        return UnderWay(self, broker, where)

    def begins(self, batch: UnderWay) -> None:
        """Counts `batch`."""
        self._under_way.setdefault(batch.broker, set()).add(batch)

    def ends(self, batch: UnderWay) -> None:
        """Counts `batch` no longer: it has an answer, or gets none."""
        self._under_way.get(batch.broker, set()).discard(batch)
        self._answered(batch.broker)

    def next(self, broker: int) -> asyncio.Future[None] | None:
        """Returns a future, done when `broker` has answered something under way. None: nothing is, a batch leaves at once."""
        if not self._under_way.get(broker):
            return None
        if broker not in self._next:
            self._next[broker] = self._loop.create_future()
        return self._next[broker]

    def recount(self, leads: Callable[[TopicPartition], int | None]) -> None:
        """Forgets batches that their broker will not answer: by `leads`, another broker or none leads their partition by now."""
        for broker, batches in self._under_way.items():
            for batch in [each for each in batches if leads(each.where) != broker]:
                self.ends(batch)

    def forget(self) -> None:
        """Forgets the batches under way: the producer was replaced."""
        self._under_way.clear()
        for broker in list(self._next):
            self._answered(broker)

    def _answered(self, broker: int) -> None:
        if (heard := self._next.pop(broker, None)) is not None and not heard.done():
            heard.set_result(None)


class UnderWay:
    """A batch under way to a broker, inside the block. A generator would take three times as long, for each batch."""

    __slots__ = ("_turns", "broker", "where")

    def __init__(self, turns: Turns, broker: int, where: TopicPartition) -> None:
        self._turns = turns
        self.broker = broker
        self.where = where

    def __enter__(self) -> None:
        self._turns.begins(self)

    def __exit__(self, *_: object) -> None:
        self._turns.ends(self)
