"""The contract between receivers and the lake: every name on both topics, declared here and nowhere else.

The landing job reads headers by position and checks the key, so their order is part of the contract. A `Rule` says what a header
of a sound record is: the landing job's SQL and a page derive from these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SPECVERSION: Final = b"1.0"
JSON: Final = b"application/json"
OCTETS: Final = b"application/octet-stream"
NO_SUBJECT: Final = "-"


class EventHeader(StrEnum):
    """Headers of a record on the events topic, in order; the last is absent if there are no attributes."""

    SPECVERSION = "ce_specversion"
    ID = "ce_id"
    SOURCE = "ce_source"
    TYPE = "ce_type"
    SUBJECT = "ce_subject"
    TIME = "ce_time"
    CONTENT_TYPE = "content-type"
    ATTRIBUTES = "ce_attributes"


HEADERS: Final = tuple(header.value for header in EventHeader)
REQUIRED_HEADERS: Final = HEADERS[:-1]


class QuarantineHeader(StrEnum):
    """Headers of a record on the quarantine topic, in order, all present."""

    REASON = "reason"
    DETAIL = "detail"
    PROTOCOL = "protocol"
    SOURCE = "ce_source"
    SUBJECT = "ce_subject"
    ID = "id"
    PART = "part"  # i/n, counted from 1
    SHA256 = "sha256"
    ATTRIBUTES = "attributes"


QUARANTINE_HEADERS: Final = tuple(header.value for header in QuarantineHeader)

DETERMINISTIC: Final = b"d."
UNIQUE: Final = b"u."

ID_LENGTH: Final = 34
"""Bytes of an event id: kind and 32 hex digits."""

TYPE_PREFIX: Final = "headrace."
"""`ce_type` is this, the protocol, a dot and the kind of record."""


class Reason(StrEnum):
    """Why correctly framed data went to quarantine. A closed list: it is a metric label and a column."""

    BAD_JSON = "bad_json"  # not valid JSON where JSON was promised
    BAD_ENCODING = "bad_encoding"  # a payload that is not a sequence of the protocol's own entries
    BAD_RECORD = "bad_record"  # an entry or record of the wrong shape or type (a record that is not a map)
    BAD_TIME = "bad_time"  # a timestamp that names no point in time
    BAD_MESSAGE = "bad_message"  # a correctly framed message with invalid parts (tag, option, length)
    COMPRESSION = "compression"  # does not inflate, or an unknown compression
    INFLATED_LIMIT = "inflated_limit"  # inflates beyond LIMITS__INFLATED_BYTES
    OVERSIZED = "oversized"  # above LIMITS__EVENT_BYTES
    TOO_MANY_EVENTS = "too_many_events"  # the rest of a frame with more than it may have
    TOO_DEEP = "too_deep"  # nested deeper than it may be
    REFUSED = "refused"  # Kafka refused this record because of its content: all of it, as `encoding.encode` makes it
    INTERNAL = "internal"  # building the record raised, a bug in Headrace; the bytes are kept


class RecordFault(StrEnum):
    """Why the landing job could not understand a topic's record; `reason` in the quarantine table, besides `Reason`."""

    NULL_VALUE = "null_value"  # the record has no value
    MISSING_HEADER = "missing_header"  # a required header is absent
    REPEATED_HEADER = "repeated_header"  # one of our headers occurs twice
    MALFORMED_HEADER = "malformed_header"  # one of our headers is null, not UTF-8, or has an invalid value
    INVALID_UTF8 = "invalid_utf8"  # the record claims application/json, but its value is not UTF-8


class GapReason(StrEnum):
    """Why records are missing; `reason` in the table of gaps. A closed list."""

    RETENTION = "retention"  # Kafka deleted offsets before the job landed them
    RECREATED = "recreated"  # the topic was deleted and recreated: the part of the old one that was not landed


class Attribute(StrEnum):
    """Keys of the JSON objects in `ce_attributes` and in the quarantine's `attributes` that more than one part of Headrace knows.

    A protocol declares its own beside its events.
    """

    INDEX = "index"  # position of the event in its frame, from 0
    SEQUENCE = "sequence"  # the client's number for the event
    CONSUMER = "consumer"  # the receiver that heard the device's message
    START = "start"  # when that receiver first heard this start of the device, Unix time in milliseconds
    RESTARTS = "restarts"  # how many earlier starts of the device it had heard since it began itself
    BEHIND = "behind"  # true: it had heard a higher number of this start before
    TIME = "time"  # "received" if the client sent no time and the receive time replaces it
    NOTES = "notes"  # why JSON cannot hold the event exactly, as a list of `Note`; then `raw` is there, too
    RAW = "raw"  # base64 of the event as it was received (of Forward its entry, of Lumberjack 1 its pairs)
    REPUBLISHED = "republished"  # true on records that were sent again under another identity
    DEVICE = "device"  # the device's number
    HEADERS = "headers"  # of a record with a `RecordFault`: its headers as [{"key": text, "value": base64}, ...]
    RECORD_KEY = "record_key"  # of a record with a `RecordFault`: its Kafka key as base64


class Note(StrEnum):
    """Why JSON cannot hold an event exactly: its value is what can be read of it, and the attribute `raw` has its bytes."""

    REPEATED_KEYS = "repeated_keys"  # keys of a map are equal, as text; or it has too many to be compared
    OTHER_KEYS = "other_keys"  # keys that are numbers, times and the like; they were written as text
    INVALID_UTF8 = "invalid_utf8"  # texts that are not UTF-8; the bytes that are not were read as Windows-1252
    NUMBERS = "numbers"  # NaN or an infinity, written as a text


REPUBLISHED: Final = b'"%b":true}' % Attribute.REPUBLISHED.value.encode()
"""The end of the attributes of a record that was sent again under another identity."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The demands on a text: it must meet all that are given. `least` and `most` are bytes.

    `pattern` is of the whole text, in what the regular expressions of Python and Java have in common.
    """

    equals: str = ""
    begins: tuple[str, ...] = ()
    ends: str = ""
    least: int = 0
    most: int | None = None
    pattern: str = ""

    def __str__(self) -> str:
        """Returns the rule as pages show it."""
        said = [f"is `{self.equals}`"] if self.equals else []
        said += ["begins with " + " or ".join(f"`{each}`" for each in self.begins)] if self.begins else []
        said += [f"ends with `{self.ends}`"] if self.ends else []
        if self.least and self.least == self.most:
            said.append(f"has {self.least} bytes")
        elif self.least:
            said.append(f"has at least {self.least} byte{'s' * (self.least > 1)}")
        said += [f"is of the form `{self.pattern}`"] if self.pattern else []
        return ", ".join(said) or "any text"

    def allows(self, text: str) -> bool:
        """Returns whether `text` meets all demands."""
        size = len(text.encode())
        return (
            self.equals in ("", text)
            and self.least <= size <= (size if self.most is None else self.most)
            and (not self.begins or text.startswith(self.begins))
            and text.endswith(self.ends)
            and (not self.pattern or re.fullmatch(self.pattern, text) is not None)
        )


EVENT_RULES: Final[Mapping[EventHeader, Rule]] = {
    EventHeader.SPECVERSION: Rule(equals=SPECVERSION.decode()),
    EventHeader.ID: Rule(begins=(DETERMINISTIC.decode(), UNIQUE.decode()), least=ID_LENGTH, most=ID_LENGTH),
    EventHeader.SOURCE: Rule(begins=("/",)),
    EventHeader.TYPE: Rule(begins=(TYPE_PREFIX,), least=len(TYPE_PREFIX) + 1),
    EventHeader.SUBJECT: Rule(least=1),
    EventHeader.TIME: Rule(
        pattern=r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
    ),
    EventHeader.CONTENT_TYPE: Rule(least=1),
    EventHeader.ATTRIBUTES: Rule(begins=("{",), ends="}"),
}

QUARANTINE_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(QUARANTINE_HEADERS, Rule()),
    QuarantineHeader.REASON: Rule(least=1),
    QuarantineHeader.PART: Rule(pattern=r"[0-9]+/[0-9]+"),
}
"""The first number of `part` is 1 at least and not above the second."""
