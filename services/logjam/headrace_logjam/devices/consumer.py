"""A consumer of the devices of one endpoint, pure: messages become frames, and jumps of their numbers markers.

A device cannot be told to send again. So no message that was read is given up: frames have no deadline, and messages that Kafka
refuses for good are counted as lost. Their numbers are missing from then on.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace_common.session.interface import Frame, KeepUntil, Message, MessageSession, Reply, Status, Ticket
from typing_extensions import override

from headrace_logjam.devices.gaps import Gap, Numbers
from headrace_logjam.devices.subscription import DeviceMessage, SubscriptionMaker, read_published
from headrace_logjam.events import OVERHEAD, MessagesFrame
from headrace_logjam.wire import BodyLimits


@dataclass(slots=True, eq=False)
class _Gathered:
    """Messages that make one frame, and the gaps in front of each."""

    items: list[DeviceMessage | Gap] = field(default_factory=list)
    size: int = 0


class ConsumerSession(MessageSession):
    """See `headrace_common.session.interface.MessageSession`. Nothing is ever answered."""

    def __init__(
        self,
        endpoint: str,
        consumer: str,
        limits: BodyLimits,
        lost: Callable[[int], None] = lambda numbers: None,
        doubled: Callable[[int], None] = lambda device: None,
    ) -> None:
        """`lost` is called with how many numbers a marker covers, or Kafka refuses; `doubled` with a device whose heartbeats
        change their address.
        """
        self._endpoint = endpoint.encode()
        self._maker = SubscriptionMaker(endpoint, consumer, limits)
        self._lost = lost
        self._doubled = doubled
        self._numbers = Numbers()
        self._addresses: dict[int, bytes] = {}
        self.sure = True
        """Whether all that is read comes by one connection."""
        self._tickets = itertools.count()
        self._gathered: dict[bytes, _Gathered] = {}  # by key
        self._gathered_bytes = 0
        self._now_ms = 0
        """The time of all that is gathered: it keeps the order of numbers, though they are in several frames."""
        self._ready: deque[Frame] = deque()
        self._pending: dict[Ticket, MessagesFrame[DeviceMessage | Gap]] = {}
        self._partly: dict[Ticket, int] = {}  # how many of a frame's items are stored
        self._now = 0.0  # when `tick` was called last

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        published = read_published(message.parts)
        if not self._gathered:
            self._now_ms = now_ms
        gathered = self._gathered.setdefault(published.key, _Gathered())
        if published.meta is not None:
            _, device, _, sequence = published.meta
            start, gap, behind = self._numbers.received(device, sequence, self._now_ms)
            published = published._replace(start=start, behind=behind)
            if gap is not None:
                self._lost(gap.end - gap.start)
                gathered.items.append(gap)
            if published.address and self._addresses.setdefault(device, published.address) != published.address:
                self._addresses[device] = published.address
                self._doubled(device)
        size = message.size + OVERHEAD
        gathered.items.append(published)
        gathered.size += size
        self._gathered_bytes += size

    def read(self, *, ended: bool, empty: bool) -> None:
        """Notes how much was read. Call it before messages that were read, or when none came. `empty`: none came, and this
        session has all that were read before. `ended`: a connection has ended since the last call. The next one brings nothing
        before that call; so messages may be of either until nothing is left.
        """
        if ended:
            self.sure = False
            self._numbers.connection(sure=False)
        elif empty and not self.sure:
            self.sure = True
            self._numbers.connection(sure=True)

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._partly[ticket] = stored
        if whole:
            del self._partly[ticket], self._pending[ticket]

    @override
    def abandon(self, ticket: Ticket) -> None:
        items = self._pending.pop(ticket).items[self._partly.pop(ticket, 0) :]
        self._lost(sum(isinstance(item, DeviceMessage) and item.meta is not None for item in items))

    @override
    def outgoing(self) -> Reply | None:
        return None

    @override
    def deadline(self) -> float | None:
        """Returns now once something is gathered: messages read in one turn of the event loop belong together."""
        return self._now if self._gathered else None

    @override
    def tick(self, now: float) -> None:
        self._now = now
        for key, gathered in self._gathered.items():
            ticket = next(self._tickets)
            frame = MessagesFrame(
                gathered.items,
                ticket,
                self._now_ms,
                gathered.size,
                self._maker,
                ordering_key=b"%b/%b" % (self._endpoint, key),
                acknowledged=False,
                kept=KeepUntil.REFUSAL,
            )
            self._pending[ticket] = frame
            self._ready.append(frame)
        self._gathered.clear()
        self._gathered_bytes = 0

    @override
    def status(self) -> Status:
        return Status(partial_bytes=self._gathered_bytes, idle=not (self._pending or self._gathered))
