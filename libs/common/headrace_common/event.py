"""The record on Kafka: CloudEvents 1.0 in Kafka's binary content mode, and the quarantine record beside it.

Every name that another part needs (header names and their order, event types, reasons, attribute keys) is declared here
and nowhere else. The landing job reads headers by position and checks the key, so the order is part of the contract.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

from headrace_common.record import encode, field, header, length, read_varint

SPECVERSION: Final = b"1.0"
JSON: Final = b"application/json"
OCTETS: Final = b"application/octet-stream"
NO_SUBJECT: Final = "-"

HEADERS: Final = (
    "ce_specversion",
    "ce_id",
    "ce_source",
    "ce_type",
    "ce_subject",
    "ce_time",
    "content-type",
    "ce_attributes",
)
"""Headers of a record on the events topic, in their order; the last is absent when there are no attributes."""

REQUIRED_HEADERS: Final = HEADERS[:7]

QUARANTINE_HEADERS: Final = (
    "reason",
    "detail",
    "protocol",
    "ce_source",
    "ce_subject",
    "id",
    "part",
    "sha256",
    "attributes",
)
"""Headers of a record on the quarantine topic, in their order, all present. `part` is ``i/n`` counted from 1."""

DETERMINISTIC: Final = b"d."
UNIQUE: Final = b"u."


class Protocol(StrEnum):
    """The five protocols: the first path segment of `ce_source`, the middle of `ce_type`."""

    LUMBERJACK = "lumberjack"
    FORWARD = "forward"
    COURIER = "courier"
    LOGJAM = "logjam"
    SEGMENT = "segment"


class Reason(StrEnum):
    """Why something soundly framed went to quarantine. A closed list: it is a metric label and a column."""

    BAD_JSON = "bad_json"  # not valid JSON where JSON was promised
    BAD_ENCODING = "bad_encoding"  # a payload that is not a sequence of the protocol's own entries
    BAD_RECORD = "bad_record"  # an entry or record of the wrong shape or type (a record that is no map)
    BAD_TIME = "bad_time"  # a timestamp that names no point in time
    BAD_MESSAGE = "bad_message"  # a soundly framed message whose parts make no sense (tag, option, length)
    COMPRESSION = "compression"  # does not inflate, or an unknown compression
    INFLATED_LIMIT = "inflated_limit"  # inflates beyond LIMITS__INFLATED_BYTES or LIMITS__RATIO
    OVERSIZED = "oversized"  # above LIMITS__EVENT_BYTES
    TOO_MANY_EVENTS = "too_many_events"  # above LIMITS__FRAME_EVENTS
    TOO_DEEP = "too_deep"  # nested deeper than LIMITS__DEPTH
    REFUSED = "refused"  # Kafka refused this very record for its content
    INTERNAL = "internal"  # building the record raised: a bug of ours, the bytes are kept


class RecordFault(StrEnum):
    """Why the landing job could not understand a record of a topic; `reason` of the quarantine table beside `Reason`."""

    NULL_VALUE = "null_value"  # the record has no value
    MISSING_HEADER = "missing_header"  # a required header is not there
    REPEATED_HEADER = "repeated_header"  # a header of ours is there twice
    MALFORMED_HEADER = "malformed_header"  # a header of ours is null, no UTF-8, or not what it has to be
    INVALID_UTF8 = "invalid_utf8"  # the value says application/json and is no UTF-8


class GapReason(StrEnum):
    """Why records are missing; `reason` of the table of gaps. A closed list."""

    RETENTION = "retention"  # Kafka deleted offsets before they were landed
    RECREATED = "recreated"  # the topic was deleted and made anew: what was not landed of the old one
    LOGJAM = "logjam"  # a Logjam consumer did not receive numbers that a device had given out: `GAP_TYPE`


GAP_TYPE: Final = "headrace.logjam.gap"
"""`ce_type` of the marker that a Logjam consumer publishes for numbers that it never received: a JSON object of `GapField`s.

Its `ce_source` is that of the endpoint's events, which carry the attributes `device`, `sequence` and `created`: by these four
the landing job sees that another consumer has brought what is missing. A device numbers its heartbeats too, so a range with
one in it is never wholly covered by events alone.
"""


class GapField(StrEnum):
    """Keys of a marker's JSON object. A closed list."""

    CONSUMER = "consumer"  # which receiver did not get them: its name
    DEVICE = "device"  # the device's number
    FROM = "from"  # the first number that is missing
    TO = "to"  # one past the last
    AFTER = "after"  # `created` of the message before, Unix time in milliseconds; absent when unknown
    BEFORE = "before"  # `created` of the message behind, likewise


class Attribute(StrEnum):
    """Keys of the JSON objects in `ce_attributes` and in the quarantine's `attributes`. A closed list."""

    CHUNK = "chunk"  # Forward: the chunk as text, or {"$bin": base64} when it is no text
    INDEX = "index"  # position of the event in its frame, from 0
    SEQUENCE = (
        "sequence"  # Lumberjack: of a quarantined event, as the client wrote it. Logjam: the device's of a message
    )
    TAG = "tag"  # Forward: the tag of a quarantined entry, or the original of an unusable one
    OPTION = "option"  # Forward: the message's option map
    NONCE = "nonce"  # Courier: the payload's nonce, 32 hex digits
    METADATA = "metadata"  # Forward: an entry's metadata map, else its message's
    SIGNAL = "signal"  # Forward: fluent_signal of an event that is no log: 1 metrics, 2 traces
    TIME = "time"  # "received" when the client sent none and the receive time stands in
    KEYS = "keys"  # JSON pointer -> what was changed about the key: integer, binary, repeated, other
    INVALID_UTF8 = "invalid_utf8"  # JSON pointer -> base64 of the original bytes of a text that was no UTF-8
    REPUBLISHED = "republished"  # true on records that a fresh producer sent again
    DEVICE = "device"  # Logjam: the device's number
    CREATED = "created"  # Logjam: when the device says it was made, Unix time in milliseconds
    HEADERS = "headers"  # of a record with a `RecordFault`: its headers as [{"key": text, "value": base64}, ...]
    RECORD_KEY = "record_key"  # of a record with a `RecordFault`: its Kafka key as base64


Event = bytes
"""An event as what a Kafka record says of it: value and headers, encoded once (`record.encode`), read with `record.decode`."""


@dataclass(slots=True)
class Reject:
    """Something that could not be understood, to be kept byte for byte on the quarantine topic.

    `raw` may be of any size: the publisher cuts it into numbered parts. `subject` and `attributes` as in `Envelope`.
    """

    reason: Reason
    detail: str
    raw: bytes
    protocol: str
    source: str
    subject: str
    id: bytes
    attributes: bytes = b"{}"

    def __bool__(self) -> bool:
        """However little it holds, it is there."""
        return True

    def __len__(self) -> int:
        """Bytes that it holds."""
        return len(self.raw) + len(self.attributes)

    def record(self, value: bytes, part: int, parts: int, sha256: bytes) -> bytes:
        """The encoded record of part `part` of `parts` (from 1), with `value`; `sha256` is the hex digest of the whole."""
        values = (
            self.reason.value.encode(),
            self.detail.encode("utf-8", "replace"),
            self.protocol.encode(),
            self.source.encode(),
            self.subject.encode("utf-8", "replace"),
            self.id,
            b"%d/%d" % (part, parts),
            sha256,
            self.attributes,
        )
        return encode(value, list(zip(QUARANTINE_HEADERS, values, strict=True)))


Part = Event | Reject


ID_LENGTH: Final = 34
"""Bytes of an event id: kind and 32 hex digits."""


class Envelope:
    """What the events of one frame have in common, encoded once for all of them.

    `source` is a finished `ce_source` (see `source`), `subject` any text (empty becomes ``-``).
    """

    __slots__ = ("_after_id", "_attributes", "_bare", "_before_id", "_kind", "_tail", "protocol", "source", "subject")

    def __init__(
        self, protocol: Protocol, source: str, subject: str, *, type_suffix: str = "event", content_type: bytes = JSON
    ) -> None:
        self.protocol = protocol
        self.source = source
        self.subject = subject or NO_SUBJECT
        spec = header(HEADERS[0], SPECVERSION) + field(HEADERS[1].encode()) + length(ID_LENGTH)
        self._bare = length(7) + spec
        self._before_id = length(8) + spec
        self._after_id = (
            header(HEADERS[2], source.encode())
            + header(HEADERS[3], f"headrace.{protocol.value}.{type_suffix}".encode())
            + header(HEADERS[4], self.subject.encode("utf-8", "replace"))
            + field(HEADERS[5].encode())
        )
        self._kind = header(HEADERS[6], content_type)
        self._attributes: bytes | None = None
        self._tail = b""

    def event(self, name: bytes, time: bytes, value: bytes, attributes: bytes | None = None) -> Event:
        """An event: `name` its id from this module's functions, `time` RFC 3339 UTC, `attributes` a JSON object."""
        assert len(name) == ID_LENGTH
        if attributes is None:
            return b"".join(
                (length(len(value)), value, self._bare, name, self._after_id, length(len(time)), time, self._kind)
            )
        if attributes is not self._attributes:  # mostly the same for all events of a frame
            self._attributes = attributes
            self._tail = self._kind + header(HEADERS[7], attributes)
        return b"".join(
            (length(len(value)), value, self._before_id, name, self._after_id, length(len(time)), time, self._tail)
        )

    def around(self, time_bytes: int) -> tuple[bytes, bytes, bytes]:
        """What stands around the id, and behind the time, of events without attributes whose time has so many bytes: an event
        is ``length(len(value)), value, [0], id, [1], time, [2]``. For loops that make nothing else; otherwise `event`.
        """
        return self._bare, self._after_id + length(time_bytes), self._kind

    def reject(
        self, reason: Reason, detail: str, raw: bytes, reject_id: bytes, attributes: bytes | None = None
    ) -> Reject:
        """A `Reject` with this envelope's protocol, source and subject."""
        return Reject(
            reason, detail, raw, self.protocol.value, self.source, self.subject, reject_id, attributes or b"{}"
        )


_ID_BEHIND_VALUE: Final = 1 + len(header(HEADERS[0], SPECVERSION)) + len(field(HEADERS[1].encode())) + 1


def event_id(event: Event) -> bytes:
    """The id of an event that an `Envelope` made."""
    size, start = read_varint(event, 0)
    at = start + size + _ID_BEHIND_VALUE
    return event[at : at + ID_LENGTH]


class FrameIds(NamedTuple):
    """Ids of the events of one frame that are told apart by their index: ``kind + 24 hex digits + index as 8``."""

    prefix: bytes

    def __call__(self, index: int) -> bytes:
        return b"%b%08x" % (self.prefix, index)


class FieldHash:
    """BLAKE2b of 128 bits over a protocol's name and fields, each as u32 length (big-endian) + bytes.

    The last field may come in pieces (`begin`, then `update`), so that hashing a large one can be sliced.
    """

    __slots__ = ("_state",)

    def __init__(self, protocol: Protocol, *fields: bytes) -> None:
        pieces: list[bytes] = []
        for item in (protocol.value.encode(), *fields):
            pieces += (len(item).to_bytes(4, "big"), item)
        self._state = hashlib.blake2b(b"".join(pieces), digest_size=16)

    def begin(self, length: int) -> None:
        """A field of `length` bytes follows."""
        self._state.update(length.to_bytes(4, "big"))

    def update(self, piece: bytes | bytearray | memoryview) -> None:
        """A piece of it."""
        self._state.update(piece)

    def id(self) -> bytes:
        """``d.`` + 32 hex digits."""
        return DETERMINISTIC + self._state.hexdigest().encode()

    def frame_ids(self) -> FrameIds:
        """Ids for a frame's events: one hash for all, the index tells them apart."""
        return FrameIds(self.id()[:26])


def deterministic_id(protocol: Protocol, *fields: bytes) -> bytes:
    """``d.`` + 32 hex digits over `fields`; content must be among them."""
    return FieldHash(protocol, *fields).id()


def unique_id() -> bytes:
    """``u.`` + 32 random hex digits."""
    return UNIQUE + os.urandom(16).hex().encode()


def unique_frame_ids() -> FrameIds:
    """Unique ids for a frame's events, at the cost of one random number for all."""
    return FrameIds(UNIQUE + os.urandom(12).hex().encode())


def source(protocol: Protocol, identity: str) -> str:
    """`ce_source`: ``/<protocol>/<identity>``, the identity as one percent-encoded path segment."""
    return f"/{protocol.value}/{quote(identity, safe='', errors='replace')}"


@lru_cache(maxsize=4096)
def _to_second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0").encode()


FIRST_SECOND: Final = -62135596800  # 0001-01-01T00:00:00Z
LAST_SECOND: Final = 253402300799  # 9999-12-31T23:59:59Z


def rfc3339(seconds: int, fraction: int | None = None, digits: int = 9) -> bytes:
    """RFC 3339 in UTC with `digits` decimals of `fraction`, none when it is None.

    Raises ValueError outside the years 1 to 9999, which RFC 3339 cannot write.
    """
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        raise ValueError(f"{seconds} s is outside the years 1 to 9999")
    if fraction is None:
        return _to_second(seconds) + b"Z"
    return b"%b.%0*dZ" % (_to_second(seconds), digits, fraction)


def rfc3339_ms(milliseconds: int) -> bytes:
    """RFC 3339 in UTC with three decimals of a Unix time in milliseconds (the record's own timestamp)."""
    return rfc3339(milliseconds // 1000, milliseconds % 1000, 3)
