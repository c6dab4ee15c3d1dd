"""A frame on its way to Kafka, and the listener that learns its outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Final

from headrace_common.fairness.scheduler import Account
from headrace_common.operations.errors import DeliveryError
from headrace_common.record.event import Part
from headrace_common.session.interface import Frame, Pause, Ticket

NO_DEADLINE: Final = float("inf")
"""The deadline of a frame that is held until it is stored."""


class DeliveryListener(ABC):
    """Learns the outcome of a frame. Its methods must not block or raise."""

    account: Account
    """The CPU time that its frames have used."""

    @abstractmethod
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """The first `stored` parts of the frame are durable. `whole`: these are all; no further call follows."""

    @abstractmethod
    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        """The frame will not be stored. No further call follows."""


class InFlightFrame:
    """A frame on its way to Kafka. Times are those of the event loop, in seconds."""

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
        "halfway",
        "listener",
        "made",
        "parts",
        "reserved",
        "small",
        "submitted",
    )  # fmt: skip

    def __init__(self, frame: Frame, listener: DeliveryListener, submitted: float, deadline: float) -> None:
        """`deadline`: when the frame is abandoned; `NO_DEADLINE`: never."""
        self.frame = frame
        self.listener = listener
        self.account = listener.account
        self.submitted = submitted
        self.deadline = deadline
        self.small = frame.small
        self.parts: Iterator[Part | Pause] = iter(()) if frame.small else frame.parts()
        self.growing = True  # until its first part is built
        self.made: list[Part] = []  # built, but not in a batch yet
        self.halfway = False  # the last slice ended inside a part
        self.built = 0  # parts added to batches so far, over all cycles
        self.exhausted = False  # there are no more parts
        self.dead = False  # abandoned
        self.cost = 0.0  # CPU seconds so far
        self.grown = 0
        self.reserved = 0
        self._give_back: Callable[[int], None] | None = None

    def reserve(self, size: int, give_back: Callable[[int], None]) -> None:
        """Records a reservation of `size` bytes for the frame's growth. It replaces an earlier one."""
        self.shrink(0)
        self.reserved, self._give_back = size, give_back

    def shrink(self, to: int) -> None:
        """Gives back the reservation beyond `to` bytes."""
        if self._give_back is not None and self.reserved > to:
            self._give_back(self.reserved - to)
            self.reserved = to

    def enlarge(self) -> None:
        """It takes more work than a small frame: it is built like a large one. None of its parts may be in a batch yet."""
        self.small = False
        self.restart()

    def restart(self) -> None:
        """Discards the parts built so far. None of them may be in a batch yet."""
        assert not self.built
        self.parts = self.frame.parts()
        self.grown = 0
        self.shrink(0)
