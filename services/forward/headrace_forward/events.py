"""A message as a frame: what it publishes, made piece by piece while the publisher asks."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import orjson
from headrace_common.errors import ProtocolError
from headrace_common.event import (
    Attribute,
    Envelope,
    FieldHash,
    Part,
    Protocol,
    Reason,
    Reject,
    unique_frame_ids,
    unique_id,
)
from headrace_common.inflate import InflateLimits, inflate_gzip
from headrace_common.session import Ticket

from headrace_forward.entries import EntryBuilder
from headrace_forward.option import Option
from headrace_forward.values import bin_or_text, to_json, unpack
from headrace_forward.wire import Message, content

PROTOCOL: Final = Protocol.FORWARD
SLICE_ENTRIES: Final = 256
SLICE_ENTRY_BYTES: Final = 256 << 10
"""Entries and bytes after which a slice of entries ends: it is decoded at once."""

SLICE_BYTES: Final = 1 << 20
OVERHEAD: Final = 512
"""Bytes that a message costs beyond its own."""

GZIP: Final = b"\x1f\x8b"
NEAR: Final = 366 * 86_400
"""Seconds around now in which the first eight bytes of a chunk count as the time that Go's logger writes there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one message may hold: sizes in bytes."""

    frame_events: int
    event_bytes: int
    inflate: InflateLimits
    depth: int
    tag_bytes: int
    option_bytes: int


class ForwardFrame:
    """One message. See `headrace_common.session.Frame`."""

    __slots__ = ("_limits", "_message", "_option", "_source", "acknowledged", "received_ms", "size", "ticket")

    def __init__(
        self, message: Message, option: Option, ticket: Ticket, received_ms: int, source: str, limits: Limits
    ) -> None:
        self._message = message
        self._option = option
        self._source = source
        self._limits = limits
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = option.chunk is not None
        self.size = message.size + OVERHEAD

    def spoiled(self, detail: str) -> Reject:
        """The whole message, reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`."""
        message, option = self._message, self._option
        problem = self._problem()
        if problem is not None:
            yield self._whole(Reason.BAD_MESSAGE, problem)
            return
        tag, tag_bytes, attributes = _tag(message.element(0))
        if message.entries is not None:
            body: bytes | bytearray = message.raw[message.entries[0] : message.ends[1]]
        elif message.option_index == 3:
            time = message.element(1)
            if option.metadata is not None:  # as an entry of the other modes has it
                time = b"\x92" + time + option.metadata
            body = b"\x92" + time + message.element(2)
        else:
            body = content(message.element(1))
            if option.compressed == "gzip" or body.startswith(GZIP):
                inflated = bytearray()
                try:
                    for piece in inflate_gzip(bytes(body), self._limits.inflate):
                        yield len(piece)
                        inflated += piece
                except ProtocolError as error:
                    reason = Reason.COMPRESSION if error.limit is None else Reason.INFLATED_LIMIT
                    yield self._whole(reason, str(error))
                    return
                body = inflated
        builder = yield from self._builder(tag, tag_bytes, attributes, body)
        if message.entries is not None:
            yield from self._listed(builder, body)
        else:
            yield from self._packed(builder, body)

    def _listed(self, builder: EntryBuilder, body: bytes | bytearray) -> Iterator[Part]:
        """Forward mode: the decoder has cut the entries already."""
        entries = self._message.entries
        assert entries is not None
        bounds = [at - entries[0] for at in entries]
        known = min(len(bounds) - 1, self._limits.frame_events)
        first = 0
        while first < known:
            last = min(first + SLICE_ENTRIES, known)
            if bounds[last] - bounds[first] > SLICE_ENTRY_BYTES:
                last = max(first + 1, bisect_right(bounds, bounds[first] + SLICE_ENTRY_BYTES, first, last) - 1)
            yield from builder.build(body, bounds[first : last + 1], first)
            first = last
        if self._message.count > known:
            yield builder.tail(bytes(body[bounds[known] :]), known, Reason.TOO_MANY_EVENTS, self._too_many())

    def _packed(self, builder: EntryBuilder, body: bytes | bytearray) -> Iterator[Part | int]:
        """Concatenated entries: cut and built a slice at a time. What does not line up is quarantined from there on."""
        unpacker = msgpack.Unpacker(max_buffer_size=0)
        fed, first, start = 0, 0, 0
        problem = ""
        while start < len(body) and not problem:
            bounds = [start]
            most = min(SLICE_ENTRIES, self._limits.frame_events - first)
            while len(bounds) <= most and bounds[-1] - start < SLICE_ENTRY_BYTES:
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

    def _builder(
        self, tag: str, tag_bytes: bytes, attributes: dict[str, Any], body: bytes | bytearray
    ) -> Generator[int, None, EntryBuilder]:
        """The entries' builder, as the generator's value; hashing a large body is sliced."""
        option = self._option
        envelope = Envelope(PROTOCOL, self._source, tag)
        if option.chunk is None:
            ids = content_ids = unique_frame_ids()
        else:
            state = FieldHash(PROTOCOL, tag_bytes, option.chunk)
            state.begin(len(body))
            view = memoryview(body)
            for start in range(0, len(body), SLICE_BYTES):
                if start:
                    yield 0
                state.update(view[start : start + SLICE_BYTES])
            view.release()
            ids = state.frame_ids()
            content_ids = unique_frame_ids() if names_content(option.chunk, self.received_ms // 1000) else ids
            attributes[Attribute.CHUNK.value] = bin_or_text(option.chunk)
        return EntryBuilder(
            envelope,
            ids,
            content_ids,
            self.received_ms,
            attributes,
            lambda: {Attribute.TAG.value: tag, **attributes, Attribute.OPTION.value: orjson.Fragment(option.json())},
            self._limits.event_bytes,
            self._limits.depth,
        )

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

    def _whole(self, reason: Reason, detail: str) -> Reject:
        """The message as received, as one reject."""
        chunk = self._option.chunk
        if chunk is None or names_content(chunk, self.received_ms // 1000):
            reject_id = unique_id()
        else:
            reject_id = FieldHash(PROTOCOL, b"", chunk, self._message.raw).id()
        subject = ""
        if self._message.ends and not self._tag_too_long():
            subject, _, _ = _tag(self._message.element(0))
        return Envelope(PROTOCOL, self._source, subject).reject(reason, detail, self._message.raw, reject_id)

    def _tag_too_long(self) -> bool:
        return len(content(self._message.element(0))) > self._limits.tag_bytes

    def _too_many(self) -> str:
        return f"more than LIMITS__FRAME_EVENTS ({self._limits.frame_events}) entries"


def names_content(chunk: bytes, now: int) -> bool:
    """Whether `chunk` may be a hash of the content, so that it names what was sent and not the sending.

    By its form alone: 32 hex digits (Fluent Bit until 5.0), or exactly 24 base64 characters (Fluent Bit from 5.1: SHA-512
    cut to 16 bytes) whose first 8 bytes are not a little-endian Unix time near `now` (fluent-logger-golang's are; fluentd's
    25 bytes end in a newline). @fluent-org/logger's random ids look the same; its resends have new ones anyway.
    """
    if len(chunk) == 32:
        try:
            binascii.unhexlify(chunk)
        except ValueError:
            return False
        return True
    if len(chunk) != 24:
        return False
    try:
        decoded = b64decode(chunk, validate=True)
    except ValueError:
        return False
    return abs(int.from_bytes(decoded[:8], "little") - now) > NEAR


def _aligned(body: bytes | bytearray, bounds: list[int]) -> int:
    """How many entries from the start begin like an array. A payload with anything else is out of step from there on."""
    for index in range(len(bounds) - 1):
        first = body[bounds[index]]
        if not 0x90 <= first <= 0x9F and first not in (0xDC, 0xDD):
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
