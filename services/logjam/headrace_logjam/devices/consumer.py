"""A consumer of the devices of one endpoint, pure: messages become frames, and jumps of their numbers markers.

A device cannot be told to send again. So no message that was read is given up: frames have no deadline, and messages that Kafka
refuses for good are counted as lost. Their numbers are missing from then on.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace_common.session.interface import Message, Ticket
from typing_extensions import override

from headrace_logjam.devices.gaps import Numbers
from headrace_logjam.devices.subscription import SubscriptionMaker, attributes_of
from headrace_logjam.gathering import GatheringSession
from headrace_logjam.wire import BodyLimits, read_published


class ConsumerSession(GatheringSession):
    """See `headrace_common.session.interface.MessageSession`. Nothing is ever answered."""

    def __init__(
        self, endpoint: str, consumer: str, limits: BodyLimits, lost: Callable[[int], None] = lambda numbers: None
    ) -> None:
        """`lost` is called with how many numbers a marker covers, or Kafka refuses."""
        self._marks = SubscriptionMaker(endpoint, consumer, limits)
        super().__init__(endpoint.encode(), self._marks)
        self._sender = endpoint
        self._lost = lost
        self._numbers = Numbers()

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        published = read_published(message.parts, self._sender)
        before = []
        if published.meta is not None:
            heard = self._numbers.received(published.meta.device, published.meta.sequence, now_ms)
            published.heard = attributes_of(heard)
            if heard.gap is not None:
                self._lost(heard.gap.end - heard.gap.start)
                before.append(self._marks.marker(heard.gap, now_ms))
        self.gather(published, message, now_ms, *before)

    def read(self, *, ended: bool, empty: bool) -> None:
        """Notes how much was read. Call it before messages that were read, or when none came. `empty`: none came, and this
        session has all that were read before. `ended`: a connection has ended since the last call. The next one brings nothing
        before that call; so messages may be of either until nothing is left.
        """
        self._numbers.read(ended=ended, empty=empty)

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            del self._pending[ticket]

    @override
    def abandon(self, ticket: Ticket) -> None:
        self._lost(sum(message.meta is not None for message in self._pending.pop(ticket).messages))
