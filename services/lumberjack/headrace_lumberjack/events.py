"""Data frames as records, made one by one while the publisher asks. Every frame gives exactly one event or reject."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import orjson
from headrace_common.event import (
    Attribute,
    Envelope,
    Event,
    Part,
    Protocol,
    Reason,
    Reject,
    rfc3339_ms,
    source,
    unique_frame_ids,
    unique_id,
)
from headrace_common.json_object import Fault, JsonObject, utc
from headrace_common.record import length
from headrace_common.session import Peer, Ticket

from headrace_lumberjack.fields import Fields, host_of, loosely, stream_of
from headrace_lumberjack.identity import Names
from headrace_lumberjack.wire import DATA_HEADER, V2, Run, pair_count, pairs

PROTOCOL: Final = Protocol.LUMBERJACK
OVERHEAD: Final = 512
"""Bytes that a frame costs beyond its own."""

FRAME_OVERHEAD: Final = 40
"""Bytes that keeping the place of one data frame costs."""

LARGE: Final = 1 << 18
"""An event so long is built in a turn of its own."""

REMEMBERED: Final = 256
"""Envelopes of one connection that are kept encoded: one for each host and index."""

NAME_BYTES: Final = 1024
"""Longest text that is believed to name a host or an index: it goes into a header of every event, and stays in memory."""

RECEIVED: Final = b'{"%b":"received"}' % Attribute.TIME.value.encode()

MILLISECONDS: Final = frozenset(f"{number:03d}Z" for number in range(1000))
"""How Beats end their times, which have `TIME_BYTES` then."""

TIME_BYTES: Final = len("2026-11-21T09:30:00.000Z")

NOTHING: Final[dict[str, Any]] = {}


class Records:
    """What the frames of one connection have in common: where they come from, limits, and what was encoded once.

    `event_bytes`: largest event as it is stored; `depth`: deepest nesting.
    """

    def __init__(self, peer: Peer, event_bytes: int, depth: int) -> None:
        self._peer = peer
        self._event_bytes = event_bytes
        wanted = JsonObject(Fields, depth)
        self._read, self._nothing = wanted.read, wanted.nothing
        self._envelopes: dict[tuple[str | None, str | None], Envelope] = {}
        self._names = Names()

    def envelope(self, host: str | None, subject: str | None) -> Envelope:
        """Of events from `host` (the certificate's subject wins, the address stands in) in the stream `subject`."""
        key = (host, subject)
        known = self._envelopes.get(key)
        if known is None:
            peer = self._peer
            identity = host if host and peer.identity == peer.address and _names(host) else peer.identity
            stream = subject if subject and _names(subject) else ""
            known = Envelope(PROTOCOL, source(PROTOCOL, identity), stream)
            if stream == (subject or "") and (not host or _names(host)):
                if len(self._envelopes) >= REMEMBERED:
                    self._envelopes.clear()
                self._envelopes[key] = known
        return known

    def reject(self, reason: Reason, detail: str, raw: bytes, sequence: int) -> Reject:
        """One data frame's content that cannot be understood."""
        attributes = b'{"%b":%d}' % (Attribute.SEQUENCE.value.encode(), sequence)
        return self.envelope(None, None).reject(reason, detail, raw, unique_id(), attributes)

    def documents(self, run: Run, received_ms: int) -> Iterator[Part | int]:
        """The JSON of the J frames of `run`, byte for byte, or rejects; 0 before what takes long.

        Nearly all of a Beat's events go through this loop: what they share with the one before is not made again.
        """
        data, at, most = run.data, run.start + DATA_HEADER, self._event_bytes
        read, name_of, unique = self._read, self._names.of, unique_frame_ids()
        now = rfc3339_ms(received_ms)
        host = subject = None
        envelope = self.envelope(host, subject)
        before, between, behind = envelope.around(TIME_BYTES)
        second = ""  # as far as the point of the last time that was of milliseconds
        for index, end in enumerate(run.ends):
            piece = data[at:end]
            raw = piece if type(piece) is bytes else bytes(piece)
            at = end + DATA_HEADER
            size = len(raw)
            if size > LARGE:
                yield 0
            fields = read(raw) if size <= most else self._too_large(size)
            if isinstance(fields, Fault):
                yield self.reject(*fields, raw, run.sequence(index))
                continue
            if fields is self._nothing:
                fields = loosely(raw)
            its_host, its_subject = host_of(fields), stream_of(fields)
            if its_host != host or its_subject != subject:
                host, subject = its_host, its_subject
                envelope = self.envelope(host, subject)
                before, between, behind = envelope.around(TIME_BYTES)
            text = fields.time
            if text is None:
                yield envelope.event(unique(index), now, raw, RECEIVED)
                continue
            written = text.encode()
            name = name_of(fields, written, raw) or unique(index)
            if text[:20] != second or text[20:] not in MILLISECONDS:
                time = utc(text)
                if time is None:
                    yield envelope.event(name, now, raw, RECEIVED)
                    continue
                if time != written or text[20:] not in MILLISECONDS:
                    yield envelope.event(name, time, raw)
                    continue
                second = text[:20]
            yield b"".join((length(size), raw, before, name, between, written, behind))

    def pairs(self, run: Run, received_ms: int) -> Iterator[Part | int]:
        """The pairs of the D frames of `run` as JSON objects, or rejects; 0 before what takes long."""
        unique = unique_frame_ids()
        for index in range(len(run)):
            frame = run.frame(index)
            if len(frame) > LARGE:
                yield 0
            part = self._object(frame, unique(index), received_ms)
            yield self.reject(*part, frame, run.sequence(index)) if isinstance(part, Fault) else part

    def _object(self, frame: bytes, name: bytes, received_ms: int) -> Event | Fault:
        """A repeated key's values become an array, in order."""
        if len(frame) > self._event_bytes + DATA_HEADER + 8 * pair_count(frame):
            return self._too_large(len(frame))
        record, notes = _plainly(frame), NOTHING
        if record is None:
            record, notes = _carefully(frame)
        host, kind, at = (_first(record.get(name)) for name in ("host", "type", "@timestamp"))
        time = None if at is None else utc(at)
        value = orjson.dumps(record)
        if not notes:
            attributes = RECEIVED if time is None else None
        else:
            attributes = orjson.dumps(notes if time else {**notes, Attribute.TIME.value: "received"})
        if len(value) + len(attributes or b"") > self._event_bytes:
            return self._too_large(len(value))
        return self.envelope(host, kind).event(name, time or rfc3339_ms(received_ms), value, attributes)

    def _too_large(self, size: int) -> Fault:
        return Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self._event_bytes}")


class EventsFrame:
    """Data frames that are published together. See `headrace_common.session.Frame`."""

    __slots__ = ("_records", "_run", "acknowledged", "received_ms", "size", "ticket")

    def __init__(self, run: Run, ticket: Ticket, received_ms: int, records: Records) -> None:
        self._run: Run | None = run
        self._records = records
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = True
        self.size = run.size + FRAME_OVERHEAD * len(run) + OVERHEAD

    def spoiled(self, detail: str) -> Reject:
        """All of them as received, reason `internal`."""
        run = self._run
        assert run is not None, "all records were made"
        raw = bytes(run.data[run.start : run.ends[-1]])
        return self._records.reject(Reason.INTERNAL, detail, raw, run.sequence(0))

    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`."""
        run = self._run
        assert run is not None, "called once"
        make = self._records.documents if run.version == V2 else self._records.pairs
        yield from make(run, self.received_ms)
        self._run = None  # it waits for Kafka now, and its records hold all that it held


def _plainly(frame: bytes) -> dict[str, Any] | None:
    """The pairs of a D frame, if all of it is UTF-8 and no key is repeated."""
    try:
        record: dict[str, Any] = {key.decode(): value.decode() for key, value in pairs(frame)}
    except UnicodeDecodeError:
        return None
    return record if len(record) == pair_count(frame) else None


def _carefully(frame: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pairs of a D frame whatever they are, and what was changed, for the attributes."""
    record: dict[str, Any] = {}
    changed: dict[str, str] = {}
    invalid: dict[str, str] = {}
    for number, (raw_key, raw_value) in enumerate(pairs(frame)):
        key = _decode(raw_key, f"/(key {number})", invalid)
        place = f"/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in record:
            record[key] = _decode(raw_value, place, invalid)
            continue
        if place not in changed:
            if place in invalid:
                invalid[f"{place}/0"] = invalid.pop(place)
            record[key] = [record[key]]
            changed[place] = "repeated"
        record[key].append(_decode(raw_value, f"{place}/{len(record[key])}", invalid))
    notes: dict[str, Any] = {}
    if changed:
        notes[Attribute.KEYS.value] = changed
    if invalid:
        notes[Attribute.INVALID_UTF8.value] = invalid
    return record, notes


def _decode(raw: bytes, place: str, invalid: dict[str, str]) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        invalid[place] = b64encode(raw).decode()
        return raw.decode("utf-8", "replace")


def _names(text: str) -> bool:
    """Whether it is short enough to be believed."""
    return len(text) <= NAME_BYTES and len(text.encode("utf-8", "replace")) <= NAME_BYTES


def _first(value: Any) -> str | None:
    found = value[0] if type(value) is list else value
    return found if type(found) is str else None
