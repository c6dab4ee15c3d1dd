"""A consumer of the devices of one endpoint, pure: messages become frames, and missing ones a marker.

A device cannot be told to send again. So no message that was read is given up: frames have no deadline, and messages that Kafka
refuses for good become a marker, like those that never came.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace_common.session.interface import Frame, Message, MessageSession, Reply, Status, Ticket
from typing_extensions import override

from headrace_logjam.devices.gaps import BEGINS, BEHIND, Gap, MessageFacts, Notice, Numbers, NumbersBehind
from headrace_logjam.devices.positions import DevicePosition
from headrace_logjam.devices.subscription import DeviceMessage, SubscriptionFrame, SubscriptionMaker, read_published
from headrace_logjam.events import OVERHEAD
from headrace_logjam.wire import HEARTBEAT, BodyLimits

AGAIN: Final = 5.0
"""Seconds until a marker of refused messages is published: Kafka may refuse it as well."""

SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The choice among the messages of devices: all, or those whose topic begins with one of `topics`. `whole`: no message is
    left out anywhere; only then a missing number is a loss.
    """

    topics: tuple[bytes, ...] = ()
    whole: bool = True

    def takes(self, message: DeviceMessage) -> bool:
        """Returns whether a message is taken; heartbeats, and messages that cannot be understood, always are."""
        if not self.topics or message.problem or message.frames[0] == HEARTBEAT:
            return True
        return message.frames[1].startswith(self.topics)


@dataclass(slots=True, eq=False)
class _Gathered:
    """Messages that make one frame, and the gaps in front of each."""

    now_ms: int
    items: list[DeviceMessage | Gap] = field(default_factory=list)
    size: int = 0
    stored: bool = False
    """All of it is durable, or the markers in its place are."""


ALL: Final = TopicChoice()


class ConsumerSession(MessageSession):
    """See `headrace_common.session.interface.MessageSession`. Nothing is ever answered.

    Calls `noticed` with each notice on the numbers and its device, `lost` with how many numbers a new marker covers, and `first`
    when a device is heard for the first time. Until `positions` are written, a kill would make it first again, and hide losses
    meanwhile. So nothing is handed out from then on until `written`.
    """

    def __init__(
        self,
        endpoint: str,
        consumer: str,
        limits: BodyLimits,
        noticed: Callable[[Notice, int], None] = lambda notice, device: None,
        lost: Callable[[int], None] = lambda numbers: None,
        known: Mapping[int, DevicePosition] | None = None,
        chosen: TopicChoice = ALL,
        held: Mapping[int, NumbersBehind] | None = None,
        first: Callable[[], None] | None = None,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        """`known`: this consumer's positions when it ended; `held`: which later numbers are stored as well. `chosen`: if that is
        not all, nothing is counted. `first`: None if no positions are written. `now_ms`: the time (Unix) of markers of refused
        messages, since Kafka may refuse the time of these.
        """
        self._endpoint = endpoint.encode()
        self._maker = SubscriptionMaker(endpoint, consumer, limits)
        self._noticed = noticed
        self._lost = lost
        self._first = first
        self._unwritten = False
        """A device was heard for the first time, and `positions` are not written."""
        self._held = held or {}
        self._numbers = Numbers(known, {device: behind.numbers for device, behind in self._held.items()})
        self.sure = True
        """Whether all that is read comes by one connection."""
        self._positions = dict(known or {})
        self._begun: dict[int, int] = {}
        """By restarted device: a time (ms) after that of its earlier records."""
        self._seen: dict[int, DevicePosition] = {}  # by device: last read in this turn
        self._turns: deque[tuple[set[_Gathered], dict[int, DevicePosition]]] = deque()  # read, and may not be stored
        self._chosen = chosen
        self._tickets = itertools.count()
        self._gathered: dict[tuple[bytes, int], _Gathered] = {}
        """By key, and the second in which it came: a frame has one time, and messages may wait 10 s to be `written`."""
        self._gathered_bytes = 0
        self._ready: deque[Frame] = deque()
        self._pending: dict[Ticket, tuple[SubscriptionFrame, list[_Gathered]]] = {}  # and the messages that it counts
        self._partly: dict[Ticket, int] = {}  # how many of a frame's items are stored
        self._refused: list[Gap] = []  # markers
        self._unmarked: list[Gap] = []  # rows of messages
        self._refused_for: list[_Gathered] = []
        self._now_ms = now_ms
        self._again: float | None = None
        self._now = 0.0  # when `tick` was called last

    def resume(self, now_ms: int) -> None:
        """Marks the numbers that were missing when this consumer ended, and goes on after those that it had stored. Call it once,
        before anything is received.
        """
        stands = {device: DevicePosition(held.numbers[-1][1] - 1, held.received) for device, held in self._held.items()}
        if self._numbers.holes:
            gathered = self._gathered[b"", now_ms // SECOND_MS] = _Gathered(now_ms)
            self._turns.append(({gathered}, stands))
            for gap in self._numbers.holes:
                self._lost(gap.end - gap.start)
                gathered.items.append(gap)
        else:
            self._positions |= stands

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        published = read_published(message.parts)
        if not self._chosen.takes(published):
            return
        place = published.key, now_ms // SECOND_MS
        gathered = self._gathered.get(place)
        if gathered is None:
            gathered = self._gathered[place] = _Gathered(now_ms)
        if published.meta is not None and self._chosen.whole:
            _, device, _, sequence = published.meta
            if device not in self._positions:
                self._positions[device] = DevicePosition(max(sequence - 1, 0), gathered.now_ms)
                if self._first is not None:
                    self._unwritten = True
                    self._first()
            found = self._numbers.received(
                device, MessageFacts(sequence, now_ms, hash(published.frames), published.address)
            )
            if found.notice is not None:
                self._noticed(found.notice, device)
            for gap in found.gaps:
                if not gap.before_us:
                    self._lost(gap.end - gap.start)
                gathered.items.append(gap)
            if found.notice in BEGINS:
                self._begun[device] = now_ms + 1
            if found.notice not in BEHIND:
                self._seen[device] = DevicePosition(sequence, max(now_ms, self._begun.get(device, 0)))
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

    def positions(self) -> Mapping[int, DevicePosition]:
        """Returns, by device, the last number stored with all that was read before it; at first, the last one before us."""
        turns: deque[tuple[set[_Gathered], dict[int, DevicePosition]]] = deque()
        for gathered, seen in self._turns:
            left = {each for each in gathered if not each.stored}
            if turns and left <= turns[-1][0]:
                turns[-1][1].update(seen)  # it waits for nothing more than the turn before it
            elif left:
                turns.append((left, seen))
            else:
                self._positions |= seen
        self._turns = turns
        return self._positions

    def written(self) -> None:
        """Learns that `positions` are written, or could not be: the next `tick` may hand out what is gathered."""
        self._unwritten = False

    @override
    def frames(self) -> Iterator[Frame]:
        while self._ready:
            yield self._ready.popleft()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        self._partly[ticket] = stored
        if whole:
            del self._partly[ticket]
            for gathered in self._pending.pop(ticket)[1]:
                gathered.stored = True

    @override
    def abandon(self, ticket: Ticket) -> None:
        """Marks the messages of a frame that Kafka refuses for good as lost, except those that are stored already."""
        frame, stands_for = self._pending.pop(ticket)
        items = frame.items[self._partly.pop(ticket, 0) :]
        messages = numbers_of(items, frame.received_ms)
        self._lost(len(messages))
        self._refused += [item for item in items if isinstance(item, Gap)]
        self._unmarked = merged(self._unmarked + messages)
        self._refused_for += stands_for
        if self._again is None:
            self._again = self._now + AGAIN

    @override
    def outgoing(self) -> Reply | None:
        return None

    @override
    def deadline(self) -> float | None:
        """Returns now once something is gathered: messages read in one turn of the event loop belong together."""
        return self._now if self._gathered and not self._unwritten else self._again

    @override
    def tick(self, now: float) -> None:
        self._now = now
        if not self._unwritten:
            self._hand_out_gathered()
        if self._again is not None and self._again <= now:
            self._again = None
            refused = sorted(self._refused + self._unmarked, key=lambda gap: gap[:3])
            self._refused, self._unmarked = [], []
            now_ms = self._now_ms()
            self._hand_out(refused, b"", now_ms, OVERHEAD * len(refused), [self._one_for_refused(now_ms)])

    def _hand_out_gathered(self) -> None:
        if self._seen:
            self._turns.append((set(self._gathered.values()), self._seen))
            self._seen = {}
        for (key, _), gathered in self._gathered.items():
            self._hand_out(gathered.items, key, gathered.now_ms, gathered.size, [gathered])
            gathered.items = []
        self._gathered.clear()
        self._gathered_bytes = 0

    def _one_for_refused(self, now_ms: int) -> _Gathered:
        """Returns one that replaces all that was refused until now: Kafka may refuse for hours."""
        one, refused = _Gathered(now_ms), set(self._refused_for)
        self._refused_for = []
        self._turns = deque(
            (gathered if gathered.isdisjoint(refused) else gathered - refused | {one}, seen)
            for gathered, seen in self._turns
        )
        return one

    def _hand_out(
        self, items: Sequence[DeviceMessage | Gap], key: bytes, now_ms: int, size: int, stands_for: list[_Gathered]
    ) -> None:
        ticket = next(self._tickets)
        frame = SubscriptionFrame(items, ticket, now_ms, size, self._maker, b"%b/%b" % (self._endpoint, key))
        self._pending[ticket] = frame, stands_for
        self._ready.append(frame)

    @override
    def status(self) -> Status:
        idle = not (self._pending or self._gathered or self._refused or self._unmarked)
        return Status(partial_bytes=self._gathered_bytes, idle=idle)


def numbers_of(items: Sequence[DeviceMessage | Gap], received_ms: int) -> list[Gap]:
    """Returns the number of each message as a gap, as if it had never come; messages without one are left out."""
    numbered = (item.meta for item in items if isinstance(item, DeviceMessage) and item.meta is not None)
    return [Gap(meta.device, meta.sequence, meta.sequence + 1, received_ms, received_ms) for meta in numbered]


def merged(gaps: Sequence[Gap]) -> list[Gap]:
    """Returns the gaps that messages left, with successive ones joined. A device that restarts has a later time."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: (gap.device, gap.after or 0, gap.start)):
        if found and found[-1].device == gap.device and found[-1].end == gap.start:
            found[-1] = found[-1]._replace(end=gap.end, before=gap.before)
        else:
            found.append(gap)
    return found
