"""A message as a frame: what it publishes, made piece by piece while the publisher asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import orjson
from headrace_common.errors import ProtocolError
from headrace_common.event import (
    OCTETS,
    Attribute,
    Envelope,
    FieldHash,
    Part,
    Reason,
    Reject,
    rfc3339_ms,
    unique_id,
)
from headrace_common.inflate import InflateLimits, inflate_gzip, inflate_zstd
from headrace_common.session import Ticket

from headrace_forward.entries import EntryBuilder
from headrace_forward.ids import PROTOCOL, SLICE_BYTES, message_ids, names_content
from headrace_forward.kinds import Bytes, content
from headrace_forward.option import Option
from headrace_forward.values import bin_or_text, to_json, unpack
from headrace_forward.wire import Message, new_unpacker

SLICE_ENTRIES: Final = 256
SLICE_ENTRY_BYTES: Final = 64 << 10
"""Entries and bytes after which a slice of entries ends: it is decoded at once."""

OPTION_ALWAYS: Final = 256
"""Bytes up to which an option goes with every reject of its message."""

OVERHEAD: Final = 512
"""Bytes that a message costs beyond its own."""

INFLATERS: Final[tuple[tuple[bytes, Callable[[bytes | memoryview, InflateLimits], Iterator[bytes]]], ...]] = (
    (b"\x1f\x8b", inflate_gzip),
    (b"\x28\xb5\x2f\xfd", inflate_zstd),
)
"""By the bytes that they begin with. Entries begin with an array, metrics and traces with a map: no clash."""

UNCOMPRESSED: Final = (None, "text")
METRICS, TRACES = 1, 2
"""Values of `fluent_signal` that are known, beside 0, logs (Fluent Bit, FLB_EVENT_TYPE_*)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one message may hold: sizes in bytes."""

    frame_events: int
    event_bytes: int
    inflate: InflateLimits
    depth: int
    tag_bytes: int
    option_bytes: int


class Origin:
    """Where a connection's events come from; the envelope of the tag it used last is kept, as most use one."""

    __slots__ = ("_envelope", "_tag", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self._tag: str | None = None
        self._envelope: Envelope

    def envelope(self, tag: str) -> Envelope:
        """Of JSON events with this tag, or none if it is empty."""
        if tag != self._tag:
            self._tag, self._envelope = tag, Envelope(PROTOCOL, self.source, tag)
        return self._envelope


class MessageFrame(ABC):
    """One message, in whichever codec. See `headrace_common.session.Frame`."""

    __slots__ = ("_limits", "_option", "_origin", "_raw", "acknowledged", "received_ms", "size", "ticket")

    def __init__(
        self, raw: bytes, size: int, option: Option, ticket: Ticket, received_ms: int, origin: Origin, limits: Limits
    ) -> None:
        self._raw = raw
        self._option = option
        self._origin = origin
        self._limits = limits
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = option.chunk is not None
        self.size = size + OVERHEAD

    @abstractmethod
    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`."""

    @abstractmethod
    def _subject(self) -> str:
        """The tag, if it is one."""

    def spoiled(self, detail: str) -> Reject:
        """The whole message, reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def _whole(self, reason: Reason, detail: str) -> Reject:
        """The message as received, as one reject."""
        chunk = self._option.chunk
        if chunk is None or names_content(chunk, self.received_ms // 1000):
            reject_id = unique_id()
        else:
            reject_id = FieldHash(PROTOCOL, b"", chunk, self._raw).id()
        return self._origin.envelope(self._subject()).reject(reason, detail, self._raw, reject_id)

    def _builder(
        self, tag: str, tag_bytes: bytes, attributes: dict[str, Any], body: Bytes
    ) -> Generator[int, None, EntryBuilder]:
        """The entries' builder, as the generator's value; hashing a large body is sliced."""
        option = self._option
        ids, content_ids = yield from message_ids(tag_bytes, option.chunk, body, self.received_ms // 1000)
        if option.chunk is not None:
            attributes[Attribute.CHUNK.value] = bin_or_text(option.chunk)
        return EntryBuilder(
            self._origin.envelope(tag),
            ids,
            content_ids,
            self.received_ms,
            attributes,
            self._about({Attribute.TAG.value: tag, **attributes}),
            self._limits.event_bytes,
            self._limits.depth,
        )

    def _about(self, common: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        """What goes with the raw bytes of a reject: `common`, and the option. A long option goes with the first reject only:
        a hundred thousand bad entries of one byte must not become a hundred thousand copies of it.
        """
        said = len(self._option.raw) <= OPTION_ALWAYS

        def about() -> dict[str, Any]:
            nonlocal said
            if said and len(self._option.raw) > OPTION_ALWAYS:
                return common
            said = True
            return {**common, Attribute.OPTION.value: orjson.Fragment(self._option.json())}

        return about

    def _too_many(self) -> str:
        return f"more than LIMITS__FRAME_EVENTS ({self._limits.frame_events}) entries"


class ForwardFrame(MessageFrame):
    """One msgpack message."""

    __slots__ = ("_message",)

    def __init__(
        self, message: Message, option: Option, ticket: Ticket, received_ms: int, origin: Origin, limits: Limits
    ) -> None:
        super().__init__(message.raw, message.size, option, ticket, received_ms, origin, limits)
        self._message = message

    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`."""
        message, option = self._message, self._option
        problem = self._problem()
        if problem is not None:
            yield self._whole(Reason.BAD_MESSAGE, problem)
            return
        tag, tag_bytes, attributes = _tag(message.element(0))
        if message.entries is not None:
            body: Bytes = memoryview(message.raw)[message.entries[0] - message.base : message.ends[1]]
        elif message.option_index == 3:
            time = message.element(1)
            if option.metadata is not None:  # as an entry of the other modes has it
                time = b"\x92" + time + option.metadata
            body = b"\x92" + time + message.element(2)
        else:
            try:
                body = yield from self._inflated(message.content(1))
            except ProtocolError as error:
                reason = Reason.COMPRESSION if error.limit is None else Reason.INFLATED_LIMIT
                yield self._whole(reason, str(error))
                return
        if option.signal:
            if message.entries is not None:
                body = message.element(1)
            yield from self._opaque(tag, tag_bytes, attributes, body)
            return
        builder = yield from self._builder(tag, tag_bytes, attributes, body)
        if message.entries is not None:
            yield from self._listed(builder, body)
        else:
            yield from self._packed(builder, body)

    def _inflated(self, body: memoryview) -> Generator[int, None, Bytes]:
        """The payload, inflated if its first bytes say that it is compressed, whatever the option says.

        Raises `ProtocolError` when it does not inflate, or is neither entries nor what the option says.
        """
        for magic, inflate in INFLATERS:
            if body[: len(magic)] == magic:
                inflated = bytearray()
                for piece in inflate(body, self._limits.inflate):
                    yield len(piece)
                    inflated += piece
                return inflated
        claim = self._option.compressed
        if claim not in UNCOMPRESSED and body and not _is_array(body[0]):
            raise ProtocolError(f"`compressed` is {claim[:40]!r}, and the payload is neither gzip, zstd nor entries")
        return body

    def _opaque(self, tag: str, tag_bytes: bytes, attributes: dict[str, Any], body: Bytes) -> Iterator[Part | int]:
        """Metrics or traces: no entries but a payload of Fluent Bit's own, one event as it stands."""
        option, limits = self._option, self._limits
        if option.signal not in (METRICS, TRACES):
            yield self._whole(Reason.BAD_MESSAGE, f"fluent_signal {option.signal} is not known")
            return
        if len(body) > limits.event_bytes:
            yield self._whole(Reason.OVERSIZED, f"{len(body)} bytes, LIMITS__EVENT_BYTES {limits.event_bytes}")
            return
        _, ids = yield from message_ids(tag_bytes, option.chunk, body, self.received_ms // 1000)
        attributes |= {Attribute.SIGNAL.value: option.signal, Attribute.TIME.value: "received"}
        if option.chunk is not None:
            attributes[Attribute.CHUNK.value] = bin_or_text(option.chunk)
        envelope = Envelope(PROTOCOL, self._origin.source, tag, content_type=OCTETS)
        yield envelope.event(ids(0), rfc3339_ms(self.received_ms), bytes(body), orjson.dumps(attributes))

    def _listed(self, builder: EntryBuilder, body: Bytes) -> Iterator[Part]:
        """Forward mode: the decoder has cut the entries already."""
        entries = self._message.entries
        assert entries is not None
        origin = entries[0]
        known = min(len(entries) - 1, self._limits.frame_events)
        first = 0
        while first < known:
            last = min(first + SLICE_ENTRIES, known)
            if entries[last] - entries[first] > SLICE_ENTRY_BYTES:
                last = max(first + 1, bisect_right(entries, entries[first] + SLICE_ENTRY_BYTES, first, last) - 1)
            yield from builder.build(body, [at - origin for at in entries[first : last + 1]], first)
            first = last
        if self._message.count > known:
            rest = bytes(body[entries[known] - origin :])
            yield builder.tail(rest, known, Reason.TOO_MANY_EVENTS, self._too_many())

    def _packed(self, builder: EntryBuilder, body: Bytes) -> Iterator[Part | int]:
        """Concatenated entries: cut and built a slice at a time. What does not line up is quarantined from there on."""
        unpacker = new_unpacker()
        unpacker.feed(body[:SLICE_BYTES])
        fed, first, start = min(SLICE_BYTES, len(body)), 0, 0
        problem = ""
        while start < len(body) and not problem:
            bounds = [start]
            most = min(SLICE_ENTRIES, self._limits.frame_events - first)
            while len(bounds) <= most and bounds[-1] - start < SLICE_ENTRY_BYTES and bounds[-1] < len(body):
                try:
                    unpacker.skip()
                    bounds.append(unpacker.tell())
                except msgpack.OutOfData:
                    if fed == len(body):
                        if bounds[-1] < fed:
                            problem = "the payload ends inside an entry"
                        break
                    unpacker.feed(body[fed : fed + SLICE_BYTES])
                    fed = min(fed + SLICE_BYTES, len(body))
                    yield 0
                except (msgpack.FormatError, msgpack.StackError, ValueError) as error:
                    problem = f"the payload is not a sequence of entries: {type(error).__name__}"
                    break
            aligned = _aligned(body, bounds)
            if aligned < len(bounds) - 1:
                problem = "the payload is not a sequence of entries: an element is no array"
                del bounds[aligned + 1 :]
            if len(bounds) > 1:
                yield from builder.build(body, bounds, first)
            first += len(bounds) - 1
            start = bounds[-1]
            if first >= self._limits.frame_events and start < len(body) and not problem:
                yield builder.tail(bytes(body[start:]), first, Reason.TOO_MANY_EVENTS, self._too_many())
                return
        if problem:
            yield builder.tail(bytes(body[start:]), first, Reason.BAD_ENCODING, problem)

    def _problem(self) -> str | None:
        """Why the message as a whole makes no sense, if so."""
        message = self._message
        least = 3 if message.option_index == 3 else 2
        if len(message.ends) < least:
            return f"a message of {len(message.ends)} elements"
        if self._tag_too_long():
            return "the tag is longer than FORWARD__TAG_BYTES"
        if len(message.element(message.option_index)) > self._limits.option_bytes:
            return "the option is larger than FORWARD__OPTION_BYTES"
        return self._option.problem

    def _subject(self) -> str:
        if not self._message.ends or self._tag_too_long():
            return ""
        return _tag(self._message.element(0))[0]

    def _tag_too_long(self) -> bool:
        return len(content(self._message.element(0))) > self._limits.tag_bytes


def _is_array(first: int) -> bool:
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def _aligned(body: Bytes, bounds: list[int]) -> int:
    """How many entries from the start begin like an array. A payload with anything else is out of step from there on."""
    for index in range(len(bounds) - 1):
        if not _is_array(body[bounds[index]]):
            return index
    return len(bounds) - 1


def _tag(raw: bytes) -> tuple[str, bytes, dict[str, Any]]:
    """(subject, bytes for the id, attributes): a tag that is empty or no text becomes ``-``, with the original kept.

    Never raises: the reject of a whole message needs it too.
    """
    try:
        value = unpack(raw)
    except ValueError:
        value = None
    if isinstance(value, str | bytes):
        content = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        text = bin_or_text(content)
        if isinstance(text, str) and text:
            return text, content, {}
        return "", content, {Attribute.TAG.value: text}
    try:
        return "", raw, {Attribute.TAG.value: orjson.Fragment(to_json(raw))}
    except ValueError:
        return "", raw, {Attribute.TAG.value: {"$bin": b64encode(raw).decode()}}
