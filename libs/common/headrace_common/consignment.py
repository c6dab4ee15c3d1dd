"""A frame on its way to Kafka, and who hears what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from headrace_common.budget import GrowthPool
from headrace_common.errors import DeliveryError
from headrace_common.event import Event, Part
from headrace_common.inflate import SLICE
from headrace_common.session import Frame, Ticket


class Receipt(Protocol):
    """Who hears what became of a frame: its connection. Must not block or raise."""

    def settled(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """So many parts from the frame's start are durable; `whole`: that is all of it, and the frame is done with."""

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """The frame will not be stored, and is done with."""

    def began(self, ticket: Ticket, event: Event) -> None:
        """The frame's first event was made."""


class Consignment:
    """A frame on its way to Kafka."""

    __slots__ = (
        "_give_back", "built", "dead", "deadline", "exhausted", "frame", "grown", "parts", "receipt", "reserved",
        "spill", "submitted",
    )  # fmt: skip

    def __init__(self, frame: Frame, receipt: Receipt, submitted: float, deadline: float) -> None:
        self.frame = frame
        self.receipt = receipt
        self.submitted = submitted
        self.deadline = deadline
        self.parts: Iterator[Part | int] = frame.parts()
        self.spill: Part | int | None = None  # made, but it had to wait for the next round
        self.built = 0  # parts handed to a batch so far, over all rounds
        self.exhausted = False  # there are no more parts
        self.dead = False  # given up
        self.grown = 0
        self.reserved = 0
        self._give_back: Callable[[int], None] | None = None

    def pieces(self) -> Iterator[Part | int]:
        """What is left of its parts, the one that had to wait first."""
        if self.spill is None:
            return self.parts
        spill, self.spill = self.spill, None
        return chain((spill,), self.parts)

    def must_reserve(self, size: int) -> bool:
        """Whether holding `size` bytes more needs a reservation first: beyond a slice in all it does."""
        return self._give_back is None and self.grown + size > SLICE

    async def grow(self, size: int, pool: GrowthPool, most: int) -> None:
        """The frame holds `size` bytes more; where that needs a reservation, it is made for all the frame may become."""
        reserve = self.must_reserve(size)
        self.grown += size
        if reserve:
            self._give_back = await pool.reserve(most)
            self.reserved = most

    def shrink(self, to: int) -> None:
        """Gives back what was reserved beyond `to` bytes."""
        if self._give_back is not None and self.reserved > to:
            self._give_back(self.reserved - to)
            self.reserved = to
