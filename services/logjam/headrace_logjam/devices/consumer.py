"""A consumer of the devices of one endpoint, pure: messages become frames, and jumps of their numbers are counted.

A device cannot be told to send again. So no message that was read is given up: frames have no deadline, and messages that Kafka
refuses for good are counted as lost. Their numbers are missing from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Attribute
from headrace_common.record.event import Envelope, deterministic_id, source
from headrace_common.session.interface import Message, Ticket
from typing_extensions import override

from headrace_logjam.devices.gaps import Heard, Numbers
from headrace_logjam.events import PROTOCOL, RecordMaker
from headrace_logjam.gathering import GatheringSession
from headrace_logjam.wire import HEARTBEAT, LogjamMessage, read_published

CREATED: Final = b"created"
"""The key of an attribute that Logjam's records alone have: when the device says that the message was made (Unix time, ms)."""


class SubscriptionMaker(RecordMaker):
    """Makes the records of one endpoint. Any number of consumers make the same of the same messages."""

    def __init__(self, endpoint: str, consumer: str, limits: LimitSettings) -> None:
        super().__init__(limits)
        self._source = source(PROTOCOL, endpoint)
        self._by = b',"%b":%b' % (Attribute.CONSUMER.encode(), orjson.dumps(consumer))

    @override
    def name(self, message: LogjamMessage, raw: bytes | None) -> bytes:
        """Returns the id of a message: over its frames. Devices without a number may say the same, so their endpoint is added."""
        numbered = message.meta is None or message.meta.device
        return deterministic_id(PROTOCOL, *message.frames, *(() if numbered else (self._source.encode(),)))

    @override
    def about(self, message: LogjamMessage, *, received: bool = False) -> bytes | None:
        if message.meta is None:
            return None
        _, device, created_ms, sequence = message.meta
        return _ABOUT % (device, sequence, created_ms, message.heard, self._by, _RECEIVED if received else b"")

    @override
    def new_envelope(self, sender: str, app_env: bytes, topic: bytes) -> Envelope:
        if app_env == HEARTBEAT:
            return Envelope(PROTOCOL, self._source, HEARTBEAT.decode(), type_suffix="heartbeat")
        return super().new_envelope(sender, app_env, topic)


def attributes_of(heard: Heard) -> bytes:
    """Returns the attributes that say how a number was heard, as members of a JSON object."""
    return _START % heard.start + (_BEHIND if heard.behind else b"")


_ABOUT: Final = b'{"%b":%%d,"%b":%%d,"%b":%%d%%b%%b%%b}' % (
    Attribute.DEVICE.encode(),
    Attribute.SEQUENCE.encode(),
    CREATED,
)
_START: Final = b',"%b":%%d,"%b":%%d' % (Attribute.START.encode(), Attribute.RESTARTS.encode())
_BEHIND: Final = b',"%b":true' % Attribute.BEHIND.encode()
_RECEIVED: Final = b',"%b":"received"' % Attribute.TIME.encode()


class ConsumerSession(GatheringSession):
    """See `headrace_common.session.interface.MessageSession`. Nothing is ever answered."""

    def __init__(
        self, endpoint: str, consumer: str, limits: LimitSettings, lost: Callable[[int], None] = lambda numbers: None
    ) -> None:
        """`lost` is called with how many numbers were not heard, or Kafka refuses."""
        super().__init__(endpoint.encode(), SubscriptionMaker(endpoint, consumer, limits))
        self._sender = endpoint
        self._lost = lost
        self._numbers = Numbers()

    @override
    def receive(self, message: Message, now_ms: int) -> None:
        published = read_published(message.parts, self._sender)
        if published.meta is not None:
            heard = self._numbers.received(published.meta.device, published.meta.sequence, now_ms)
            published.heard = attributes_of(heard)
            if heard.missing:
                self._lost(heard.missing)
        self.gather(published, message, now_ms)

    def ended(self) -> None:
        """Notes that a connection has ended. Call it before the messages that were read since then."""
        self._numbers.ended()

    @override
    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        if whole:
            del self._pending[ticket]

    @override
    def abandon(self, ticket: Ticket) -> None:
        self._lost(sum(message.meta is not None for message in self._pending.pop(ticket).messages))
