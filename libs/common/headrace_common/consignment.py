"""A frame on its way to Kafka, and who hears what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from headrace_common.errors import DeliveryError
from headrace_common.event import Event, Part
from headrace_common.session import Frame, Ticket
from headrace_common.turns import Account


class Receipt(Protocol):
    """Who hears what becomes of a frame: its connection. Must not block or raise."""

    @property
    def account(self) -> Account:
        """What its work has cost."""

    def settled(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """So many parts from the frame's start are durable; `whole`: that is all of it, and the frame is done with."""

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """The frame will not be stored, and is done with."""

    def began(self, ticket: Ticket, event: Event) -> None:
        """The frame's first event was made."""


class Consignment:
    """A frame on its way to Kafka."""

    __slots__ = (
        "_give_back",
        "account",
        "built",
        "cost",
        "dead",
        "deadline",
        "exhausted",
        "frame",
        "growing",
        "grown",
        "made",
        "parts",
        "receipt",
        "reserved",
        "submitted",
    )  # fmt: skip

    def __init__(self, frame: Frame, receipt: Receipt, submitted: float, deadline: float) -> None:
        self.frame = frame
        self.receipt = receipt
        self.account = receipt.account
        self.submitted = submitted
        self.deadline = deadline
        self.parts: Iterator[Part | int] = frame.parts()
        self.growing = True  # until its first part is made
        self.made: list[Part] = []  # made, but not in a batch yet
        self.built = 0  # parts handed to a batch so far, over all rounds
        self.exhausted = False  # there are no more parts
        self.dead = False  # given up
        self.cost = 0.0  # CPU seconds so far
        self.grown = 0
        self.reserved = 0
        self._give_back: Callable[[int], None] | None = None

    def reserve(self, size: int, give_back: Callable[[int], None]) -> None:
        """`size` bytes are reserved for what it grows to, in place of any before."""
        self.shrink(0)
        self.reserved, self._give_back = size, give_back

    def shrink(self, to: int) -> None:
        """Gives back what was reserved beyond `to` bytes."""
        if self._give_back is not None and self.reserved > to:
            self._give_back(self.reserved - to)
            self.reserved = to

    def restart(self) -> None:
        """What was made is thrown away; nothing of it was in a batch."""
        assert not self.built
        self.parts = self.frame.parts()
        self.grown = 0
        self.shrink(0)
