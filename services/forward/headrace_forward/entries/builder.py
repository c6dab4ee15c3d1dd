"""Builds events from entries: each `[time, record]` or `[[time, metadata], record]` becomes a record or a reject.

The fast path decodes a slice of entries at once. Its result counts only if encoding it again gives the same bytes: then
nothing was lost (a repeated key, a float32, a length wider than necessary). All other entries, and long ones, are written one by
one, in steps (`Transcoder`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import orjson
from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import FIRST_SECOND, LAST_SECOND, Envelope, Event, FrameIds, Part, rfc3339
from headrace_common.record.json_object import may_be_deep
from headrace_common.record.json_text import member_of, object_of
from headrace_common.record.transcoding import TooDeepError, TooLongError, Transcoder
from headrace_common.record.windows_1252 import pointer
from headrace_common.session.interface import Pause, paused

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.times import MILLISECOND, SECOND, BadTimeError, read_time
from headrace_forward.entries.values import Ext, unpack, write_ext
from headrace_forward.kinds import KINDS, Bytes, MsgpackKind

RAW_FACTOR: Final = 2
"""An entry more than this many times larger than the event limit is not decoded: a byte of msgpack may become sixty bytes of
objects. Its JSON could only fit the limit if it were mostly floats with few digits."""

AT_ONCE_BYTES: Final = 16 << 10
"""Bytes of entries that are decoded at once. A byte of msgpack may become objects that take 300 ns and a hundred bytes."""

LONG_TIME: Final = 4 << 10
"""A time of more bytes is not decoded."""

METADATA: Final = b"~metadata"
"""The prefix of pointers into an entry's metadata, in the notes on its event."""

GROUP_END: Final = 0xFFFF_FFFE
GROUPS: Final[dict[Any, str]] = {
    Ext(0, b"\xff\xff\xff\xff\0\0\0\0"): "start",
    Ext(0, b"\xff\xff\xff\xfe\0\0\0\0"): "end",
    -1: "start",
    -2: "end",
    2**64 - 1: "start",
    2**64 - 2: "end",
}
"""No times: Fluent Bit marks the start and end of a group with -1 and -2 (flb_log_event.h). As an EventTime, whose seconds are
unsigned, they are the last two of the year 2106; as an integer of 64 bits they may be unsigned, too."""

_TIME = struct.Struct(">II").unpack

_decode = msgspec.msgpack.Decoder(list[tuple[Any, dict[str, Any]]]).decode
_encode = msgspec.msgpack.Encoder().encode
_take_apart = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_OPTION: Final = orjson.OPT_PASSTHROUGH_DATETIME  # a datetime is an ext -1 here


EMPTY_MAPS: Final = (b"\x80", b"\xde\0\0", b"\xdf\0\0\0\0")

Building = Generator[Pause, None, Part]


@dataclass(slots=True)
class EntryBuilder:
    """Builds the parts of one message's entries.

    `ids`: ids of events in general; `content_ids`: ids of events whose time is a whole millisecond, where the chunk may be a
    hash of the content (two equal lines are then two events). `attributes`: the message's own; `about`: returns those that go
    with an entry's raw bytes, so that it can be decoded again.
    """

    envelope: Envelope
    ids: FrameIds
    content_ids: FrameIds
    received_ms: int
    attributes: dict[str, Any]
    about: Callable[[], dict[str, Any]]
    event_bytes: int
    depth: int
    plain: bytes | None = None
    """`attributes` as JSON, from the first use on; they do not change."""
    binary: bool = False
    """The last record had texts that came as bin, so the next one is expected to have some."""
    shape: list[Any] | None = None
    noted: bytes | None = None
    """The attributes, with a note on bins, of records whose `_shape` is `shape`."""

    def build(self, data: Bytes, bounds: list[int], first: int) -> Iterator[Part | Pause]:
        """Builds the entries between `bounds` (n + 1 offsets in `data`). The first has index `first` in its message."""
        large = bounds[-1] - bounds[0] > min(2 * AT_ONCE_BYTES, RAW_FACTOR * self.event_bytes)
        entries = None if large else _exactly(bytes(data[bounds[0] : bounds[-1]]), len(bounds) - 1)
        if entries is None:
            yield from self._one_by_one(data, bounds, first)
            return
        for index, (event, entry) in enumerate(zip(self._ordinary(entries, first), entries, strict=True), first):
            at = index - first
            if event is not None:
                yield event
            else:
                yield (yield from self._part(bytes(data[bounds[at] : bounds[at + 1]]), entry, index))

    def plain_events(self, data: Bytes, start: int, first: int, most: int) -> tuple[list[Part], int]:
        """Returns the events of at most `most` plain entries from `data[start]` on, made by the native core, and how many bytes
        these are. The first has index `first` in its message.
        """
        core = native.core
        if self.plain is None:
            self.plain = self._kept_attributes()
        return core.entries(
            self.envelope.pieces, self.plain, self.ids.prefix, self.content_ids.prefix, (self.event_bytes, self.depth),
            bytes(data[start : start + core.bytes_at_once]), first, most,
        )  # fmt: skip

    def at_once(self, data: Bytes, count: int) -> list[Part] | None:
        """Builds `data` if it is `count` ordinary entries, fewer than 2^16, and nothing else."""
        events, read = self.plain_events(data, 0, 0, count)
        if read == len(data) and len(events) == count:
            return events
        entries = _exactly(bytes(data), count)
        if entries is None:
            return None
        built: list[Part | None] = [*self._ordinary(entries, 0)]
        return None if None in built else cast("list[Part]", built)

    def _ordinary(self, entries: list[tuple[Any, dict[str, Any]]], first: int) -> Iterator[Event | None]:
        """Yields the event of each entry; None for one that has anything unusual."""
        if self.plain is None:
            self.plain = self._kept_attributes()
        common = self.plain or None
        second, prefix = -1, b""
        for index, (time, record) in enumerate(entries, first):
            if type(time) is list and len(time) == 2 and time[1] == {}:  # Fluent Bit's default
                time = time[0]
            plain = common
            if type(time) is msgspec.msgpack.Ext and time.code == 0 and len(bytes(time.data)) == 8:
                seconds, nanoseconds = _TIME(time.data)
                value = None if self.binary else self._plainly(record)
                if value is None:
                    value, plain = self._texts(record)
                if (
                    nanoseconds < SECOND
                    and seconds < GROUP_END
                    and value is not None
                    and len(value) <= self.event_bytes - len(plain or b"")
                ):
                    if seconds != second:
                        second, prefix = seconds, rfc3339(seconds)[:-1]
                    ids = self.ids if nanoseconds % MILLISECOND else self.content_ids
                    yield self.envelope.event(
                        b"%b%08x" % (ids.prefix, index), b"%b.%09dZ" % (prefix, nanoseconds), value, plain
                    )
                    continue
            yield None

    def _kept_attributes(self) -> bytes:
        """Returns `attributes` as JSON. A copy: what orjson returns takes 4 KB, and this stays with the connection."""
        return bytes(memoryview(orjson.dumps(self.attributes))) if self.attributes else b""

    def at_second(self, index: int, seconds: int, value: Bytes) -> Event | None:
        """Returns an ordinary event with the Unix time `seconds`. None if it is too large or the time is invalid."""
        if self.plain is None:
            self.plain = self._kept_attributes()
        if len(value) + len(self.plain) > self.event_bytes or not FIRST_SECOND <= seconds <= LAST_SECOND:
            return None
        return self.envelope.event(self.content_ids(index), rfc3339(seconds), value, self.plain or None)

    def _one_by_one(self, data: Bytes, bounds: list[int], first: int) -> Iterator[Part | Pause]:
        """Builds a slice with something unusual in it, entry by entry: most entries may still be plain."""
        view = memoryview(data)
        for index in range(len(bounds) - 1):
            piece = view[bounds[index] : bounds[index + 1]]
            if len(piece) > RAW_FACTOR * self.event_bytes:
                yield self._oversized(piece, first + index, len(piece))
                continue
            if len(piece) > AT_ONCE_BYTES:  # not even copied
                yield (yield from self._carefully(piece, first + index))
                continue
            raw = bytes(piece)
            entry = _exactly(raw, 1)
            make = self._carefully(raw, first + index) if entry is None else self._part(raw, entry[0], first + index)
            yield (yield from make)

    def _texts(self, record: dict[str, Any]) -> tuple[bytes | None, bytes | None]:
        """Returns the same as `_plainly`, but each bin that is UTF-8 becomes a text; and the attributes that note their places.

        Records of one stream have the same keys and types, so they share one note.
        """
        value = self._plainly(record, bytes.decode)
        if value is None:
            self.binary = False
            return None, None
        shape = _shape(record)
        if shape is not None and shape == self.shape:
            return value, self.noted
        paths = list(_bins(record, ""))
        self.binary = bool(paths)
        attributes = {**self.attributes, **({Attribute.BIN.value: paths} if paths else {})}
        noted = orjson.dumps(attributes) if attributes else None
        if shape is not None:
            self.shape, self.noted = shape, noted
        return value, noted

    def _plainly(self, record: dict[str, Any], other: Callable[[Any], str] | None = None) -> bytes | None:
        """Returns the record as JSON, if JSON can express its values and it cannot be too deep. `other` writes other values."""
        try:
            value = orjson.dumps(record, other, _OPTION)
        except TypeError:
            return None
        if may_be_deep(value, self.depth) and _deeper(record, self.depth):
            return None
        if b"null" in value and _odd(record):
            return None
        return value

    def tail(self, raw: Bytes, index: int, reason: Reason, detail: str) -> Part:
        """Returns the entries from `index` on, as one reject."""
        attributes = orjson.dumps({**self.about(), Attribute.INDEX.value: index})
        return self.envelope.reject(reason, detail, bytes(raw), self.ids(index), attributes)

    def _part(self, raw: bytes, entry: tuple[Any, dict[str, Any]], index: int) -> Building:
        """Builds an entry that was decoded exactly, but may hold values that JSON lacks, or be too deep."""
        time, record = entry
        if type(time) is list and len(time) == 2 and time[1] == {}:
            time = time[0]
        value = self._plainly(record)
        if value is None or type(time) is list:
            return (yield from self._carefully(raw, index))
        if type(time) is msgspec.msgpack.Ext:
            time = Ext(time.code, bytes(time.data))
        try:
            return self.event(raw, index, time, value, [])
        except BadTimeError as error:
            return self.tail(raw, index, Reason.BAD_TIME, str(error))

    def _carefully(self, raw: Bytes, index: int) -> Building:
        """Builds any entry without loss, slowly. A bug in Headrace sends only this entry to quarantine."""
        try:
            return (yield from self._checked(raw, index))
        except TooLongError:
            return self.tail(
                raw, index, Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({self.event_bytes}) as JSON"
            )
        except TooDeepError as error:
            return self.tail(raw, index, Reason.TOO_DEEP, str(error))
        except BadTimeError as error:
            return self.tail(raw, index, Reason.BAD_TIME, str(error))
        except ValueError as error:
            return self.tail(raw, index, Reason.BAD_RECORD, str(error))
        except Exception as error:
            return self.tail(raw, index, Reason.INTERNAL, f"{type(error).__name__}: {error}")

    def _checked(self, raw: Bytes, index: int) -> Building:
        elements = _elements(raw)
        if elements != 2:
            what = f"{elements} elements" if elements is not None else f"a {KINDS[raw[0]].value}"
            raise ValueError(f"an entry is [time, record], not {what}")
        given, record = self._both(raw)
        notes: list[bytes] = []
        transcoder = Transcoder(self.depth, self.event_bytes, write_ext)
        if _elements(given) == 2:
            time, metadata = self._both(given)
            if KINDS[metadata[0]] is MsgpackKind.MAP:
                given = time
                if metadata not in EMPTY_MAPS:
                    written = yield from paused(transcoder.write(metadata, METADATA))
                    notes.append(member_of(ForwardAttribute.METADATA, written))
        if KINDS[record[0]] is not MsgpackKind.MAP:
            raise ValueError(f"a record is a map, not a {KINDS[record[0]].value}")
        value = yield from paused(transcoder.write(record))
        if len(given) > LONG_TIME:
            raise BadTimeError(f"{KINDS[given[0]].value} of {len(given)} bytes is no time")
        return self.event(raw, index, unpack(given), value, notes + transcoder.notes())

    def _both(self, raw: Bytes) -> list[Bytes]:
        """Returns the two elements of an array; long ones are not copied."""
        try:
            return [memoryview(each) if len(each) > AT_ONCE_BYTES else bytes(each) for each in _take_apart(raw)]
        except msgspec.MsgspecError as error:
            raise ValueError(f"not msgpack: {error}") from error
        except RecursionError as error:
            raise TooDeepError(f"nested deeper than {self.depth}") from error

    def event(self, raw: Bytes, index: int, time: Any, value: Bytes, notes: list[bytes]) -> Part:
        """Returns the event of entry `raw`, or a reject if it is too large. `notes`: attributes of it alone, as members of a JSON
        object. Raises `BadTimeError`.
        """
        group = GROUPS.get(time) if type(time) in (int, Ext) else None
        if group is not None:
            time = None
            notes.append(member_of(ForwardAttribute.GROUP, b'"%b"' % group.encode()))
        text, whole_ms, given = read_time(time, self.received_ms)
        if not given:
            notes.append(member_of(Attribute.TIME, b'"received"'))
        encoded = orjson.dumps(self.attributes) if self.attributes else None
        if notes:
            encoded = object_of([encoded[1:-1], *notes] if encoded else notes)
            notes.clear()  # they may be as long as the event
        if len(value) + len(encoded or b"") > self.event_bytes:
            return self._oversized(raw, index, len(value) + len(encoded or b""))
        ids = self.content_ids if whole_ms else self.ids
        return self.envelope.event(ids(index), text, value, encoded)

    def _oversized(self, raw: Bytes, index: int, size: int) -> Part:
        return self.tail(raw, index, Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self.event_bytes}")


def _exactly(chunk: bytes, count: int) -> list[tuple[Any, dict[str, Any]]] | None:
    """Returns the entries of `chunk`, if decoding loses nothing."""
    data = (bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")) + chunk
    try:
        entries = _decode(data)
        return entries if _encode(entries) == data else None
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
        return None


def _elements(raw: Bytes) -> int | None:
    """Returns how many elements a msgpack array has; None for any other object."""
    if KINDS[raw[0]] is not MsgpackKind.ARRAY:
        return None
    return raw[0] & 0x0F if raw[0] < 0xA0 else int.from_bytes(raw[1 : 3 if raw[0] == 0xDC else 5], "big")


def _deeper(value: Any, depth: int) -> bool:
    """Returns whether a decoded value is nested deeper than `depth`. Works level by level, in a tenth of the slow path's time."""
    level = [value]
    for _ in range(depth - 1):
        level = [
            child
            for each in level
            for child in (each.values() if type(each) is dict else each)
            if child and (type(child) is dict or type(child) is list)  # nothing is deeper in an empty one
        ]
        if not level:
            return False
    return any(
        type(child) is dict or type(child) is list
        for each in level
        for child in (each.values() if type(each) is dict else each)
    )


def _shape(record: dict[str, Any]) -> list[Any] | None:
    """Returns the keys and types of a decoded record, and of the maps in it, in order. None: it has an array, which may hold
    anything.
    """
    types = list(map(type, record.values()))
    if list in types:
        return None
    shape: list[Any] = [list(record), types]
    if dict in types:
        for inner in record.values():
            if type(inner) is dict:
                found = _shape(inner)
                if found is None:
                    return None
                shape.append(found)
    return shape


def _bins(value: Any, path: str) -> Iterator[str]:
    """Yields JSON pointers of the bins in a decoded value."""
    if type(value) is bytes:
        yield path
    elif type(value) is dict:
        for key, item in value.items():
            yield from _bins(item, f"{path}/{pointer(key)}")
    elif type(value) is list:
        for index, item in enumerate(value):
            yield from _bins(item, f"{path}/{index}")


def _odd(value: Any) -> bool:
    """Returns whether a decoded value holds a NaN or an infinity, which orjson writes as null."""
    if type(value) is float:
        return not math.isfinite(value)
    if type(value) is dict:
        return any(map(_odd, value.values()))
    return type(value) is list and any(map(_odd, value))
