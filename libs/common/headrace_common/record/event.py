"""Events and rejects, encoded as records: CloudEvents 1.0 in Kafka's binary content mode, and quarantine records.

Names and their order: `headrace_common.record.contract`.
"""

from __future__ import annotations

import os
import struct
from binascii import hexlify
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import sha256
from typing import Final, NamedTuple, NewType
from urllib.parse import quote

from headrace_common.record.contract import (
    DETERMINISTIC,
    ID_LENGTH,
    JSON,
    NO_SUBJECT,
    QUARANTINE_HEADERS,
    SPECVERSION,
    UNIQUE,
    EventHeader,
    Reason,
)
from headrace_common.record.encoding import SHORT, encode, field, header, length

Event = NewType("Event", bytes)
"""An event, encoded as the part of a Kafka record that does not depend on its batch (`encoding.encode`)."""


@dataclass(slots=True)
class Reject:
    """Data that could not be understood, kept byte for byte on the quarantine topic.

    `raw` may have any size: the publisher splits it into numbered parts. `subject` and `attributes` are as in `Envelope`.
    """

    reason: Reason
    detail: str
    raw: bytes
    protocol: str
    source: str
    subject: str
    id: bytes
    attributes: bytes = b"{}"

    def __len__(self) -> int:
        """Bytes that it holds."""
        return len(self.raw) + len(self.attributes)

    def record(self, value: bytes, part: int, parts: int, sha256: bytes) -> bytes:
        """Encodes part `part` (from 1) of `parts`, with the content `value`. `sha256`: hex digest of the whole."""
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


_ATTRIBUTES: Final = field(EventHeader.ATTRIBUTES.encode())

_SPEC: Final = header(EventHeader.SPECVERSION, SPECVERSION) + field(EventHeader.ID.encode()) + length(ID_LENGTH)
_BARE: Final = length(7) + _SPEC
_BEFORE_ID: Final = length(8) + _SPEC

ENVELOPE_BYTES: Final = 320
"""Bytes of memory that an envelope takes beside its texts."""


class Envelope:
    """The attributes that the events of one frame have in common, encoded once for all of them.

    `source` is a complete `ce_source` (see `source`), `subject` any text (empty becomes ``-``).
    """

    __slots__ = ("_after_id", "_kind", "protocol", "source", "subject")

    def __init__(
        self,
        protocol: str,
        source: str,
        subject: str,
        *,
        type_suffix: str = "event",
        content_type: bytes = JSON,
    ) -> None:
        self.protocol = protocol
        self.source = source
        self.subject = subject or NO_SUBJECT
        self._after_id = (
            header(EventHeader.SOURCE, source.encode())
            + header(EventHeader.TYPE, f"headrace.{protocol}.{type_suffix}".encode())
            + header(EventHeader.SUBJECT, self.subject.encode("utf-8", "replace"))
            + field(EventHeader.TIME.encode())
        )
        self._kind = header(EventHeader.CONTENT_TYPE, content_type)

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return ENVELOPE_BYTES + 2 * len(self._after_id) + len(self.source) + 4 * len(self.subject)

    @property
    def pieces(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """The constant pieces of an event: before its id without attributes and with them, from the id to the time, after the
        time, and the attributes' name.
        """
        return _BARE, _BEFORE_ID, self._after_id, self._kind, _ATTRIBUTES

    def event(
        self, name: bytes, time: bytes, value: bytes | bytearray | memoryview, attributes: bytes | None = None
    ) -> Event:
        """Makes an event. `name`: its id, from this module's functions; `time`: RFC 3339 UTC; `attributes`: a JSON object."""
        assert len(name) == ID_LENGTH
        before_id = _BARE if attributes is None else _BEFORE_ID
        pieces = [length(len(value)), value, before_id, name, self._after_id, SHORT[len(time)], time, self._kind]
        if attributes is not None:
            pieces += (_ATTRIBUTES, length(len(attributes)), attributes)
        return b"".join(pieces)  # type: ignore[return-value]  # calling Event would cost 1 % of a receiver's time

    def reject(
        self, reason: Reason, detail: str, raw: bytes, reject_id: bytes, attributes: bytes | None = None
    ) -> Reject:
        """Makes a `Reject` with this envelope's protocol, source and subject."""
        about = bytes(memoryview(attributes)) if attributes else b"{}"  # what orjson returns takes 4 KB
        return Reject(reason, detail, raw, self.protocol, self.source, self.subject, reject_id, about)


FRAME_PREFIX: Final = 26
"""Bytes of an id that the events of a frame share."""


class FrameIds(NamedTuple):
    """Ids of one frame's events, distinguished by their index: ``kind + 24 hex digits + index as 8``."""

    prefix: bytes

    def __call__(self, index: int) -> bytes:
        return b"%b%08x" % (self.prefix, index)


HASHED_AT_ONCE: Final = 1 << 20
"""Bytes that are hashed between two pauses."""

JOINED_BYTES: Final = 16 << 10
"""Longest content that is copied behind the other fields of an id, to be hashed with them in one call."""

_u32: Final = struct.Struct(">I").pack


def hashed_field(item: bytes) -> bytes:
    """Returns a field as ids hash it: its length as u32, big-endian, and its bytes."""
    return _u32(len(item)) + item


@cache
def _named(protocol: str) -> bytes:
    """Returns the field of a protocol's name."""
    return hashed_field(protocol.encode())


def deterministic_id(protocol: str, *fields: bytes | bytearray | memoryview) -> bytes:
    """Returns ``d.`` + 32 hex digits: the first 128 bits of a SHA-256 over the protocol's name and `fields`, each as a
    `hashed_field`. The content must be among them.
    """
    pieces: list[bytes | bytearray | memoryview] = [_named(protocol)]
    for item in fields:
        pieces += (_u32(len(item)), item)
    if len(pieces[-1]) > JOINED_BYTES:
        state = sha256(b"".join(pieces[:-1]))
        state.update(pieces[-1])
        return digest_id(state.digest())
    return hashed_id(b"".join(pieces))


def hashed_id(fields: bytes) -> bytes:
    """Returns the `deterministic_id` of encoded fields."""
    return digest_id(sha256(fields).digest())


def digest_id(digest: bytes) -> bytes:
    """Returns the `deterministic_id` of fields with this SHA-256."""
    return DETERMINISTIC + hexlify(digest[:16])


def hash_slowly(update: Callable[[memoryview], object], content: bytes | bytearray | memoryview) -> Iterator[int]:
    """Calls a hash's `update` with bytes, however many they are; yields between steps of a millisecond."""
    for at in range(0, len(content), HASHED_AT_ONCE):
        if at:
            yield 0
        update(memoryview(content)[at : at + HASHED_AT_ONCE])


def id_fields(protocol: str, *fields: bytes) -> bytes:
    """Returns the common beginning of many `deterministic_id`s: the hash of a protocol's name and their first fields."""
    return _named(protocol) + b"".join(map(hashed_field, fields))


def id_behind(begin: bytes, name: bytes, content: bytes) -> bytes:
    """Returns the `deterministic_id` of the fields that `id_fields` has encoded, and of two more."""
    return hashed_id(b"".join((begin, _u32(len(name)), name, _u32(len(content)), content)))


def unique_id() -> bytes:
    """Returns ``u.`` + 32 random hex digits."""
    return UNIQUE + os.urandom(16).hex().encode()


def unique_frame_ids() -> FrameIds:
    """Returns unique ids for a frame's events, from one random number for all."""
    return FrameIds(UNIQUE + os.urandom(12).hex().encode())


def source(protocol: str, identity: str) -> str:
    """Returns the `ce_source` ``/<protocol>/<identity>``, with the identity as one percent-encoded path segment."""
    return f"/{protocol}/{quote(identity, safe='', errors='replace')}"


@lru_cache(maxsize=4096)
def _to_second(seconds: int) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0").encode()


FIRST_SECOND: Final = -62135596800  # 0001-01-01T00:00:00Z
LAST_SECOND: Final = 253402300799  # 9999-12-31T23:59:59Z


def rfc3339(seconds: int, fraction: int | None = None, digits: int = 9) -> bytes:
    """Returns a time by RFC 3339 in UTC with `digits` decimals of `fraction`; without decimals if it is None.

    Raises ValueError outside the years 1 to 9999, which RFC 3339 cannot write.
    """
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        raise ValueError(f"{seconds} s is outside the years 1 to 9999")
    if fraction is None:
        return _to_second(seconds) + b"Z"
    return b"%b.%0*dZ" % (_to_second(seconds), digits, fraction)


def rfc3339_ms(milliseconds: int) -> bytes:
    """Returns RFC 3339 in UTC with three decimals, from a Unix time in milliseconds (the record's own timestamp)."""
    return rfc3339(milliseconds // 1000, milliseconds % 1000, 3)
