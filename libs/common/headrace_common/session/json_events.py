"""Events that arrive as JSON objects and pass byte for byte: read, mended or rejected, for one connection. Pure."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

import msgspec
from typing_extensions import override

from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Envelope, Part, Reject, rfc3339_ms, source
from headrace_common.record.json_object import SHORT, Fault, JsonObject, utc
from headrace_common.record.json_text import Bytes
from headrace_common.session.interface import SMALL, SMALL_PARTS, Frame, Peer, Run, Ticket
from headrace_common.session.memory import Memory

F = TypeVar("F", bound=msgspec.Struct)

NAME_BYTES: Final = 1024
"""Longest text that is accepted as the name of a host or a stream: it goes into a header of every event."""

RECEIVED: Final = b'{"%b":"received"}' % Attribute.TIME.value.encode()
"""Attributes of an event without a time of its own."""


class JsonEvents(Generic[F]):
    """What the events of one connection share. A protocol overrides what it knows of them.

    `wanted`: the fields that are read; `event_bytes`: maximum size of an event; `depth`: maximum nesting depth; `memory`: where
    envelopes and origins are kept, for all connections.
    """

    def __init__(
        self, protocol: str, peer: Peer, wanted: type[F], event_bytes: int, depth: int, memory: Memory
    ) -> None:
        self.json = JsonObject(wanted, depth)
        self.event_bytes = event_bytes
        self.limits = min(event_bytes, SHORT), depth
        """Those of the native core."""
        self.memory = memory
        self._protocol = protocol
        self._peer = peer
        self._who = peer.identity, peer.anonymous

    def names(self, fields: F) -> tuple[str | None, str | None]:
        """Returns the host and the stream that an event names."""
        return None, None

    def time(self, fields: F) -> str | None:
        """Returns the time of an event as written."""
        return None

    def begun(self, fields: F, stream: str | None) -> bytes | None:
        """Returns what the ids of all events from one origin begin to hash. None: the native core makes no such ids."""
        return None

    def envelope(self, host: str | None = None, stream: str | None = None) -> Envelope:
        """Returns what `envelope_of` does."""
        return envelope_of(self._protocol, self._peer, self.memory, host, stream)

    def origin(self, key: bytes, raw: bytes) -> native.Origin | None:
        """Returns what `native.Find` asks for."""
        place = (self._who, key)
        known: native.Origin | None = self.memory.get(place)
        if known is None:
            fields = self.json.quick(raw)
            if fields is None:
                return None
            names = self.names(fields)
            envelope, begun = self.envelope(*names), self.begun(fields, names[1])
            known = envelope.pieces, begun
            self.memory.put(place, known, len(key) + len(begun or b"") + envelope.size)
        return known


class JsonFrame(Frame, Generic[F]):
    """A frame of `count` JSON events. A protocol says what they are, and what names each."""

    __slots__ = ("about", "count", "maker", "received", "received_ms", "size", "small", "ticket")

    def __init__(
        self, maker: JsonEvents[F], ticket: Ticket, received_ms: int, size: int, count: int, about: bytes | None = None
    ) -> None:
        """`about`: attributes of each event, as a JSON object that is not empty."""
        self.maker = maker
        self.about = about
        self.received = RECEIVED if about is None else about[:-1] + b"," + RECEIVED[1:]
        """Attributes of an event without a time of its own."""
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = size
        self.count = count
        self.small = size <= SMALL and count < SMALL_PARTS

    @abstractmethod
    def raws(self, first: int, last: int) -> Iterator[Bytes]:
        """Yields events `first` up to `last`; those of more than `SHORT` bytes may be views."""

    def plain(self, index: int) -> list[Part]:
        """Returns the native core's events from `index` on; none if it knows no such frames."""
        return []

    @abstractmethod
    def name(self, index: int, fields: F, event: Bytes) -> bytes:
        """Returns the id of an event."""

    @abstractmethod
    def reject(self, index: int, fault: Fault, raw: Bytes) -> Reject:
        """Makes the reject of an event."""

    @override
    def runs(self) -> Iterator[Run]:
        return native.by_turns(self.count, self.plain, self._singly)

    def _singly(self, first: int, last: int) -> Iterator[Part | int]:
        """Yields the events, or their rejects, from `first` up to `last`."""
        maker = self.maker
        json, names_of, time_of, most = maker.json, maker.names, maker.time, maker.event_bytes
        quickly = min(SHORT, most)
        now, envelope = rfc3339_ms(self.received_ms), maker.envelope()
        names: tuple[str | None, str | None] = (None, None)
        for index, raw in enumerate(self.raws(first, last), first):
            size, odd = len(raw), None
            fields = json.quick(raw) if type(raw) is bytes and size <= quickly else None
            if fields is None:
                detail = f"{size} bytes, LIMITS__EVENT_BYTES {most}"
                found = Fault(Reason.OVERSIZED, detail) if size > most else (yield from json.read(raw, most))
                if isinstance(found, Fault):
                    yield self.reject(index, found, raw)
                    continue
                odd, fields, raw = found, found.fields, found.value
            its_names = names_of(fields)
            if its_names != names:
                names, envelope = its_names, maker.envelope(*its_names)
            time = utc(time_of(fields))
            attributes = self.about if time else self.received
            if odd is not None:
                attributes = odd.attributes(attributes)
            yield envelope.event(self.name(index, fields, raw), time or now, raw, attributes)


def is_name(text: str) -> bool:
    """Returns whether a text is short enough to name a host or a stream."""
    return len(text) <= NAME_BYTES and len(text.encode("utf-8", "replace")) <= NAME_BYTES


def envelope_of(
    protocol: str, peer: Peer, memory: Memory, host: str | None = None, stream: str | None = None
) -> Envelope:
    """Returns the envelope of events from `host` in `stream`. A certificate's subject overrides `host`; the address replaces a
    missing one.
    """
    identity = host if host and peer.anonymous and is_name(host) else peer.identity
    stream = stream if stream and is_name(stream) else ""
    key = (identity, stream)
    known: Envelope | None = memory.get(key)
    if known is None:
        known = Envelope(protocol, source(protocol, identity), stream)
        memory.put(key, known, known.size + sum(map(sys.getsizeof, key)))
    return known
