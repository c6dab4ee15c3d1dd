"""Builds events from entries: each `[time, record]` or `[[time, metadata], record]` becomes a record or a reject.

Plain entries are made by the native core, or decoded a slice at a time. That result counts only if encoding it again gives
the same bytes: then nothing was lost (a repeated key, a float32, a length wider than necessary). All other entries, and long
ones, are written one by one, in steps (`Transcoder`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, cast

import msgpack
import msgspec
import orjson
from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Envelope, Event, Part, rfc3339
from headrace_common.record.json_object import may_be_deep
from headrace_common.record.json_text import Bytes, member_of, noted, object_of, with_raw
from headrace_common.session.interface import Run

from headrace_forward.attributes import ForwardAttribute
from headrace_forward.entries.ids import MessageIds
from headrace_forward.entries.times import MILLISECOND, SECOND, BadTimeError, read_time
from headrace_forward.entries.transcoding import MOST_KEYS, TooDeepError, TooLongError, Transcoder
from headrace_forward.entries.values import Ext, unpack, write_ext
from headrace_forward.kinds import ARRAY, KINDS, MAP, array_size, new_unpacker

RAW_FACTOR: Final = 2
"""An entry more than this many times larger than the event limit is not decoded: a byte of msgpack may become sixty bytes of
objects. Its JSON could only fit the limit if it were mostly floats with few digits."""

SLICE_BYTES: Final = 16 << 10
"""Bytes of entries after which a slice ends, which is decoded at once: a byte may become objects of 300 ns and 100 bytes."""

SLICE_ENTRIES: Final = 256

KEY_BYTES: Final = 4
"""Bytes of JSON that a key and its value take at least."""

LONG_TIME: Final = 4 << 10
"""A time of more bytes is not decoded."""

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
_EMPTY_MAPS: Final = (b"\x80", b"\xde\0\0", b"\xdf\0\0\0\0")


@dataclass(slots=True)
class EntryBuilder:
    """Builds the parts of one message's entries.

    `attributes`: the message's own, as JSON, or empty; `about`: those that go with an entry's raw bytes, so that it can be
    decoded again.
    """

    envelope: Envelope
    ids: MessageIds
    received_ms: int
    attributes: bytes
    about: dict[str, Any]
    event_bytes: int
    depth: int

    def build(self, body: Bytes, most: int, *, framed: bool) -> Iterator[Run]:
        """Builds the entries of `body`, one after the other. `most`: beyond which the rest is rejected; `framed`: they are known
        to be whole objects. If not, what follows an object that is no array is out of step, and is rejected with it.
        """
        view, index, start = memoryview(body), 0, 0
        while start < len(view):
            if index == most:
                detail = f"more than {most:,} entries"
                yield self.tail(view[start:], index, Reason.TOO_MANY_EVENTS, detail)
                return
            core = native.core
            if core.bytes_at_once:
                events, read = core.entries(
                    self.envelope.pieces, self.attributes, self.ids.of.prefix, self.ids.of_content.prefix,
                    (self.event_bytes, self.depth), bytes(view[start : start + core.bytes_at_once]), index,
                    min(SLICE_ENTRIES, most - index),
                )  # fmt: skip
                if events:
                    yield events
                    index, start = index + len(events), start + read
                    continue
            ends, problem = yield from _cut(view, start, min(SLICE_ENTRIES, most - index), framed=framed)
            made = list[Event | None]()
            if ends and ends[-1] - start < 2 * SLICE_BYTES:
                made = self._plain(bytes(view[start : ends[-1]]), len(ends), index)
            if made and None not in made:
                yield cast("list[Part]", made)
                index, start = index + len(made), ends[-1]
            else:
                for event, end in zip_longest(made, ends):
                    yield event or (yield from self._carefully(view[start:end], index))
                    index, start = index + 1, end
            if problem:
                yield self.tail(view[start:], index, Reason.BAD_ENCODING, problem)
                return

    def _plain(self, body: bytes, count: int, first: int) -> list[Event | None]:
        """Returns the events of the `count` entries of `body`: None in place of one that has anything unusual, and no event at
        all if decoding loses anything.
        """
        data = (bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")) + body
        try:
            entries = _decode(data)
            if _encode(entries) != data:
                return []
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
            return []
        may_be_infinite = b"\xcb\x7f" in data or b"\xcb\xff" in data  # of 64 bits: others are not encoded as they came
        return [
            self._plain_event(time, record, may_be_infinite and _not_finite(record), index)
            for index, (time, record) in enumerate(entries, first)
        ]

    def _plain_event(self, time: Any, record: dict[str, Any], infinite: bool, index: int) -> Event | None:
        """Returns the event of an entry that was decoded exactly; None if it has anything unusual."""
        if type(time) is list and len(time) == 2 and time[1] == {}:  # Fluent Bit's default
            time = time[0]
        if type(time) is msgspec.msgpack.Ext and time.code == 0 and len(bytes(time.data)) == 8:
            seconds, nanoseconds = _TIME(time.data)
            if nanoseconds >= SECOND or seconds >= GROUP_END:
                return None
            text = rfc3339(seconds, nanoseconds)
            ids = self.ids.of if nanoseconds % MILLISECOND else self.ids.of_content
        elif type(time) is int and 0 < time < GROUP_END:
            text, ids = rfc3339(time), self.ids.of_content
        else:
            return None
        try:
            value = orjson.dumps(record, bytes.decode, _OPTION)
        except TypeError:
            return None
        many_keys = len(value) > KEY_BYTES * MOST_KEYS and value.count(b'":') > MOST_KEYS
        if (
            infinite
            or many_keys
            or may_be_deep(value, self.depth)
            or len(value) + len(self.attributes) > self.event_bytes
        ):
            return None
        return self.envelope.event(ids(index), text, value, self.attributes or None)

    def tail(self, raw: Bytes, index: int, reason: Reason, detail: str) -> Part:
        """Returns the entries from `index` on, as one reject."""
        attributes = orjson.dumps({**self.about, Attribute.INDEX.value: index})
        return self.envelope.reject(reason, detail, bytes(raw), self.ids.of(index), attributes)

    def _carefully(self, raw: memoryview, index: int) -> Generator[int, None, Part]:
        """Builds any entry without loss, slowly."""
        if len(raw) > RAW_FACTOR * self.event_bytes:
            return self._oversized(raw, index, len(raw))
        try:
            return (yield from self._checked(raw, index))
        except TooLongError:
            detail = f"more than LIMITS__EVENT_BYTES ({self.event_bytes}) as JSON"
            return self.tail(raw, index, Reason.OVERSIZED, detail)
        except TooDeepError as error:
            return self.tail(raw, index, Reason.TOO_DEEP, str(error))
        except BadTimeError as error:
            return self.tail(raw, index, Reason.BAD_TIME, str(error))
        except ValueError as error:
            return self.tail(raw, index, Reason.BAD_RECORD, str(error))

    def _checked(self, raw: memoryview, index: int) -> Generator[int, None, Part]:
        elements = array_size(raw)
        if elements != 2:
            what = f"{elements} elements" if elements is not None else f"a {KINDS[raw[0]]}"
            raise ValueError(f"an entry is [time, record], not {what}")
        given, record = self._both(raw)
        members: list[bytes] = []
        transcoder = Transcoder(self.depth, self.event_bytes, write_ext)
        if array_size(given) == 2:
            time, metadata = self._both(given)
            if KINDS[metadata[0]] == MAP:
                given = time
                if len(metadata) > 5 or bytes(metadata) not in _EMPTY_MAPS:
                    written = yield from transcoder.write(metadata)
                    members.append(member_of(ForwardAttribute.METADATA, written))
        if KINDS[record[0]] != MAP:
            raise ValueError(f"a record is a map, not a {KINDS[record[0]]}")
        value = yield from transcoder.write(record)
        if len(given) > LONG_TIME:
            raise BadTimeError(f"{KINDS[given[0]]} of {len(given)} bytes is no time")
        if transcoder.notes:
            if with_raw(value, raw) > self.event_bytes:
                return self._oversized(raw, index, with_raw(value, raw))
            members += noted(tuple(sorted(transcoder.notes)), raw)
        return self.event(raw, index, unpack(given), value, members)

    def _both(self, raw: memoryview) -> list[memoryview]:
        """Returns the two elements of an array."""
        try:
            return [memoryview(each) for each in _take_apart(raw)]
        except msgspec.MsgspecError as error:
            raise ValueError(f"not msgpack: {error}") from error
        except RecursionError as error:
            raise TooDeepError(f"nested deeper than {self.depth}") from error

    def event(self, raw: Bytes, index: int, time: Any, value: Bytes, members: list[bytes]) -> Part:
        """Returns the event of entry `raw`, or a reject if it is too large. `members`: of its attributes, as those of a JSON
        object. Raises `BadTimeError`.
        """
        group = GROUPS.get(time) if type(time) in (int, Ext) else None
        if group is not None:
            time = None
            members.append(member_of(ForwardAttribute.GROUP, b'"%b"' % group.encode()))
        text, whole_ms, given = read_time(time, self.received_ms)
        if not given:
            members.append(member_of(Attribute.TIME, b'"received"'))
        encoded = self.attributes
        if members:
            encoded = object_of([encoded[1:-1], *members] if encoded else members)
            members.clear()  # they may be as long as the event
        if len(value) + len(encoded) > self.event_bytes:
            return self._oversized(raw, index, len(value) + len(encoded))
        ids = self.ids.of_content if whole_ms else self.ids.of
        return self.envelope.event(ids(index), text, value, encoded or None)

    def _oversized(self, raw: Bytes, index: int, size: int) -> Part:
        return self.tail(raw, index, Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self.event_bytes}")


def _cut(body: memoryview, start: int, most: int, *, framed: bool) -> Generator[int, None, tuple[list[int], str]]:
    """Returns the ends of the entries of one slice of `body`, from `start` on; and why no more can be read, if so."""
    unpacker, ends, at, fed = new_unpacker(), list[int](), start, start + SLICE_BYTES
    unpacker.feed(body[start:fed])
    while at < len(body) and len(ends) < most and at - start < SLICE_BYTES:
        try:
            unpacker.skip()
        except msgpack.OutOfData:
            if ends:
                break
            if fed >= len(body):
                return ends, "the payload ends inside an entry"
            yield 0
            unpacker.feed(body[fed : fed + SLICE_BYTES])
            fed += SLICE_BYTES
            continue
        except (msgpack.FormatError, msgpack.StackError, ValueError) as error:
            return ends, f"the payload is not a sequence of entries: {type(error).__name__}"
        if not framed and KINDS[body[at]] != ARRAY:
            return ends, "the payload is not a sequence of entries: an element is no array"
        at = start + unpacker.tell()
        ends.append(at)
    return ends, ""


def _not_finite(value: Any) -> bool:
    """Returns whether a decoded value holds a NaN or an infinity, which orjson writes as null."""
    if type(value) is float:
        return not math.isfinite(value)
    if type(value) is dict:
        return any(map(_not_finite, value.values()))
    return type(value) is list and any(map(_not_finite, value))
