"""A message as a frame: builds its events piece by piece, as the publisher asks."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.record.contract import OCTETS, Attribute, Reason
from headrace_common.record.event import Envelope, FrameIds, Part, Reject, deterministic_id, rfc3339_ms, unique_id
from headrace_common.record.native import BYTES_AT_ONCE
from headrace_common.session.inflate import InflateLimits, inflate_gzip
from headrace_common.session.interface import AT_ONCE, PAUSE, SMALL, Frame, Pause, Ticket, singly
from typing_extensions import override

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.builder import AT_ONCE_BYTES, EntryBuilder
from headrace_forward.entries.ids import (
    NAMES_NOTHING,
    PROTOCOL,
    SLICE_BYTES,
    message_ids,
    names_content,
    small_message_ids,
)
from headrace_forward.entries.option import Option
from headrace_forward.entries.tag import read_tag
from headrace_forward.entries.values import bin_or_text
from headrace_forward.entries.zstd import inflate_zstd
from headrace_forward.events.origin import Origin
from headrace_forward.kinds import Bytes, content
from headrace_forward.wire import ForwardMessage, new_unpacker

CHUNK: Final = ForwardAttribute.CHUNK.value
SLICE_ENTRIES: Final = 256
SLICE_ENTRY_BYTES: Final = AT_ONCE_BYTES
"""Entries and bytes after which a slice of entries ends. A slice is decoded at once."""

OPTION_ALWAYS: Final = 256
"""Options of up to this many bytes go with every reject of their message."""

OVERHEAD: Final = 512
"""Bytes of memory that a message takes beyond its own."""

INFLATERS: Final[tuple[tuple[bytes, Callable[[bytes | memoryview, InflateLimits], Iterator[bytes]]], ...]] = (
    (b"\x1f\x8b", inflate_gzip),
    (b"\x28\xb5\x2f\xfd", inflate_zstd),
)
"""Inflaters by the first bytes of a payload. Entries begin with an array, metrics and traces with a map: no clash."""

MAGICS: Final = tuple(magic for magic, _ in INFLATERS)

UNCOMPRESSED: Final = (None, "text")
METRICS, TRACES = 1, 2
"""The known values of `fluent_signal` besides 0, logs (Fluent Bit, FLB_EVENT_TYPE_*)."""


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of one message; sizes in bytes."""

    frame_events: int
    event_bytes: int
    inflate: InflateLimits
    depth: int
    tag_bytes: int
    option_bytes: int


class MessageFrame(Frame):
    """One message, in either codec."""

    __slots__ = ("_limits", "_message", "_option", "_origin", "_raw", "acknowledged", "received_ms", "size", "ticket")

    def __init__(
        self,
        message: Any,
        option: Option,
        ticket: Ticket,
        received_ms: int,
        origin: Origin,
        limits: MessageLimits,
    ) -> None:
        """`message`: with `raw`, its bytes as received, and `size`, those that it holds."""
        self._message = message
        self._raw = message.raw
        self._option = option
        self._origin = origin
        self._limits = limits
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = option.chunk is not None
        self.size = message.size + OVERHEAD

    @abstractmethod
    def _subject(self) -> str:
        """Returns the tag, if it is valid."""

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns the whole message, with reason `internal`."""
        return self._whole(Reason.INTERNAL, detail)

    def _whole(self, reason: Reason, detail: str) -> Reject:
        """Returns the message as received, as one reject."""
        chunk = self._option.chunk
        if chunk is None or chunk in NAMES_NOTHING or names_content(chunk, self.received_ms // 1000):
            reject_id = unique_id()
        else:
            reject_id = deterministic_id(PROTOCOL, b"", chunk, *filter(None, (self._origin.name,)), self._raw)
        return self._origin.envelope(self._subject()).reject(reason, detail, self._raw, reject_id)

    def _builder(
        self, tag: str, tag_bytes: bytes, attributes: dict[str, Any], body: Bytes
    ) -> Generator[Pause, None, EntryBuilder]:
        """Returns the builder of the entries; hashes a large body in slices."""
        ids = yield from message_ids(tag_bytes, self._option.chunk, self._origin.name, body, self.received_ms // 1000)
        return self._entry_builder(tag, attributes, ids)

    def _entry_builder(self, tag: str, attributes: dict[str, Any], ids: tuple[FrameIds, FrameIds]) -> EntryBuilder:
        self._note(attributes)
        return EntryBuilder(
            self._origin.envelope(tag),
            *ids,
            self.received_ms,
            attributes,
            self._about(tag, attributes),
            self._limits.event_bytes,
            self._limits.depth,
        )

    def _note(self, attributes: dict[str, Any]) -> None:
        """Adds what each event says of its message's option. A `PlainFrame` has no option but a chunk."""
        if self._option.chunk is not None:
            attributes[CHUNK] = bin_or_text(self._option.chunk)

    def _about(self, tag: str, more: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        """Returns the attributes of a reject's raw bytes: its tag, `more`, and the option. A long option goes with the first
        reject only: a hundred thousand bad one-byte entries must not make a hundred thousand copies of it.
        """
        long = len(self._option.text or self._option.raw) > OPTION_ALWAYS
        attached = not long

        def about() -> dict[str, Any]:
            nonlocal attached
            common = {ForwardAttribute.TAG.value: tag, **more}
            if attached and long:
                return common
            attached = True
            return {**common, ForwardAttribute.OPTION.value: orjson.Fragment(self._option.json())}

        return about

    def _too_many(self) -> str:
        return f"more than {self._limits.frame_events:,} entries"


class ForwardFrame(MessageFrame):
    """One msgpack message."""

    __slots__ = ()

    _message: ForwardMessage

    @property
    def small(self) -> bool:  # type: ignore[override]
        """See `Frame.small`."""
        message = self._message
        return len(message.raw) <= SMALL and message.count <= AT_ONCE and not self._compressed()

    @override
    def at_once(self) -> list[Part] | None:
        return self._ordinary() or super().at_once()

    def _ordinary(self) -> list[Part] | None:
        """Returns its events; None if anything about it is unusual."""
        message, option = self._message, self._option
        if option.problem is not None or option.signal or option.compressed not in UNCOMPRESSED:
            return None
        known = self._origin.plain_tag(message.element(0), self._limits.tag_bytes)
        if known is None or len(option.raw) > self._limits.option_bytes:
            return None
        tag, tag_bytes = known
        count = option.size
        if message.entries is not None:
            body: Bytes = message.raw[message.entries[0] - message.base : message.ends[1]]
            count = message.count
        elif message.option_index == 2 and len(message.ends) > 1:
            body = message.content(1)
        elif option.metadata is None and len(message.ends) > 2:
            body, count = b"\x92" + message.raw[message.ends[0] : message.ends[2]], 1
        else:
            return None
        if not 0 < count <= min(AT_ONCE, self._limits.frame_events):
            return None
        ids = small_message_ids(tag_bytes, option.chunk, self._origin.name, body, self.received_ms // 1000)
        return self._entry_builder(tag, {}, ids).at_once(body, count)

    def _compressed(self) -> bool:
        """Returns whether its payload is compressed, so that it grows."""
        message = self._message
        return (
            message.entries is None
            and message.option_index == 2
            and len(message.ends) > 1
            and message.begins(1, MAGICS)
        )

    @override
    def parts(self) -> Iterator[Part | Pause]:
        return singly(self.runs())

    @override
    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        message, option = self._message, self._option
        problem = self._problem()
        if problem is not None:
            yield self._whole(Reason.BAD_MESSAGE, problem)
            return
        tag, tag_bytes, attributes = read_tag(message.element(0))
        if message.entries is not None:
            body: Bytes = memoryview(message.raw)[message.entries[0] - message.base : message.ends[1]]
        elif message.option_index == 3:
            time = message.element(1)
            if option.metadata is not None:  # in the form that entries of the other modes have
                time = b"\x92" + time + option.metadata
            body = b"".join((b"\x92", time, memoryview(message.raw)[message.ends[1] : message.ends[2]]))
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
        elif message.option_index == 3 and len(body) > BYTES_AT_ONCE:  # one entry, too long for the native core
            yield from builder.build(body, [0, len(body)], 0)
        else:
            yield from self._packed(builder, body)

    def _inflated(self, body: memoryview) -> Generator[Pause, None, Bytes]:
        """Returns the payload, inflated if its first bytes say that it is compressed; the option does not count.

        Raises `ProtocolError` if it does not inflate, or if it is neither entries nor what the option says.
        """
        for magic, inflate in INFLATERS:
            if body[: len(magic)] == magic:
                inflated = bytearray()
                for piece in inflate(body, self._limits.inflate):
                    yield Pause(len(piece))
                    inflated += piece
                return inflated
        claim = self._option.compressed
        if claim not in UNCOMPRESSED and body and not _is_array(body[0]):
            raise ProtocolError(f"`compressed` is {claim[:40]!r}, and the payload is neither gzip, zstd nor entries")
        return body

    def _opaque(self, tag: str, tag_bytes: bytes, attributes: dict[str, Any], body: Bytes) -> Iterator[Part | Pause]:
        """Yields metrics or traces, which have Fluent Bit's own payload instead of entries, as one event, as received."""
        option, limits = self._option, self._limits
        if option.signal not in (METRICS, TRACES):
            yield self._whole(Reason.BAD_MESSAGE, f"fluent_signal {option.signal} is not known")
            return
        if len(body) > limits.event_bytes:
            yield self._whole(Reason.OVERSIZED, f"{len(body)} bytes, LIMITS__EVENT_BYTES {limits.event_bytes}")
            return
        _, ids = yield from message_ids(tag_bytes, option.chunk, self._origin.name, body, self.received_ms // 1000)
        attributes |= {ForwardAttribute.SIGNAL.value: option.signal, Attribute.TIME.value: "received"}
        self._note(attributes)
        envelope = Envelope(PROTOCOL, self._origin.source, tag, content_type=OCTETS)
        yield envelope.event(ids(0), rfc3339_ms(self.received_ms), bytes(body), orjson.dumps(attributes))

    def _listed(self, builder: EntryBuilder, body: Bytes) -> Iterator[Part | Pause | list[Part]]:
        """Yields the entries of forward mode, which the decoder has already cut."""
        entries = self._message.entries
        assert entries is not None
        origin = entries[0]
        known = min(len(entries) - 1, self._limits.frame_events)
        first = 0
        while first < known:
            events, _ = builder.plain_events(body, entries[first] - origin, first, min(SLICE_ENTRIES, known - first))
            if events:
                yield events
                first += len(events)
                continue
            last = min(first + SLICE_ENTRIES, known)
            if entries[last] - entries[first] > SLICE_ENTRY_BYTES:
                last = max(first + 1, bisect_right(entries, entries[first] + SLICE_ENTRY_BYTES, first, last) - 1)
            yield from builder.build(body, [at - origin for at in entries[first : last + 1]], first)
            first = last
        if self._message.count > known:
            rest = bytes(body[entries[known] - origin :])
            yield builder.tail(rest, known, Reason.TOO_MANY_EVENTS, self._too_many())

    def _packed(self, builder: EntryBuilder, body: Bytes) -> Iterator[Part | Pause | list[Part]]:
        """Yields concatenated entries, cut and built in slices. From the first invalid entry on, the rest goes to quarantine."""
        unpacker: Any = None  # that has been fed the bytes from `base` to `fed`
        view = memoryview(body)
        base = fed = first = start = 0
        problem = ""
        while start < len(body) and not problem:
            most = min(SLICE_ENTRIES, self._limits.frame_events - first)
            if not most:
                yield builder.tail(bytes(body[start:]), first, Reason.TOO_MANY_EVENTS, self._too_many())
                return
            events, read = builder.plain_events(body, start, first, most)
            if events:
                yield events
                first, start, unpacker = first + len(events), start + read, None
                continue
            if unpacker is None:
                unpacker, base, fed = new_unpacker(), start, min(start + SLICE_BYTES, len(body))
                unpacker.feed(view[base:fed])
            bounds = [start]
            while len(bounds) <= most and bounds[-1] - start < SLICE_ENTRY_BYTES and bounds[-1] < len(body):
                try:
                    unpacker.skip()
                    bounds.append(base + unpacker.tell())
                except msgpack.OutOfData:
                    if fed == len(body):
                        if bounds[-1] < fed:
                            problem = "the payload ends inside an entry"
                        break
                    unpacker.feed(view[fed : fed + SLICE_BYTES])
                    fed = min(fed + SLICE_BYTES, len(body))
                    yield PAUSE
                except (msgpack.FormatError, msgpack.StackError, ValueError) as error:
                    problem = f"the payload is not a sequence of entries: {type(error).__name__}"
                    break
            aligned = _aligned(body, bounds)
            if aligned < len(bounds) - 1:
                problem = "the payload is not a sequence of entries: an element is no array"
                del bounds[aligned + 1 :]
            if bounds[-1] - start > 2 * SLICE_ENTRY_BYTES:
                unpacker = None  # it has a copy of the long entry
            if len(bounds) > 1:
                yield from builder.build(body, bounds, first)
            first += len(bounds) - 1
            start = bounds[-1]
        if problem:
            yield builder.tail(bytes(body[start:]), first, Reason.BAD_ENCODING, problem)

    def _problem(self) -> str | None:
        """Returns why the whole message is invalid, if it is."""
        message = self._message
        least = 3 if message.option_index == 3 else 2
        if len(message.ends) < least:
            return f"a message of {len(message.ends)} elements"
        if self._tag_too_long():
            return "the tag is too long"
        if len(message.element(message.option_index)) > self._limits.option_bytes:
            return "the option is too large"
        return self._option.problem

    @override
    def _subject(self) -> str:
        if not self._message.ends or self._tag_too_long():
            return ""
        return read_tag(self._message.element(0))[0]

    def _tag_too_long(self) -> bool:
        return len(content(self._message.element(0))) > self._limits.tag_bytes


def _is_array(first: int) -> bool:
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def _aligned(body: Bytes, bounds: list[int]) -> int:
    """Returns how many entries, from the start, begin like an array. After anything else, the payload is out of step."""
    for index in range(len(bounds) - 1):
        if not _is_array(body[bounds[index]]):
            return index
    return len(bounds) - 1
