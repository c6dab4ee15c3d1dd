"""Data frames as records, made one by one while the publisher asks. Every frame gives exactly one event or reject."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import orjson
from headrace_common.event import (
    Attribute,
    Envelope,
    FrameIds,
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
from headrace_common.session import Peer, Ticket
from msgspec import UNSET, Raw, Struct, UnsetType, field

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

RECEIVED: Final = b'{"%b":"received"}' % Attribute.TIME.value.encode()

NOTHING: Final[dict[str, Any]] = {}


class _Metadata(Struct, gc=False):
    id: str | None = field(name="_id", default=None)
    raw_index: str | None = None
    index: str | None = None
    beat: str | None = None


class _Agent(Struct, gc=False):
    id: str | None = None
    ephemeral_id: str | None = None
    hostname: str | None = None


class _Log(Struct, gc=False):
    file: Raw | UnsetType = UNSET
    offset: int | None = None


class _Host(Struct, gc=False):
    name: str | None = None


class _Fields(Struct, gc=False):
    """The fields of an event that matter here; the rest is only checked to be JSON."""

    time: str | None = field(name="@timestamp", default=None)
    metadata: _Metadata | None = field(name="@metadata", default=None)
    agent: _Agent | None = None
    log: _Log | str | None = None  # a text where containers' logs are at the top
    host: _Host | str | None = None
    type: str | None = None
    message: str | None = None


_NONE: Final = _Fields()
_read_loosely = msgspec.json.Decoder(dict[str, Raw]).decode
_NAMES: Final = {info.encode_name: info for info in msgspec.structs.fields(_Fields)}
_DECODERS: Final = {name: msgspec.json.Decoder(info.type).decode for name, info in _NAMES.items()}


class Records:
    """What the frames of one connection have in common: where they come from, limits, and what was encoded once.

    `event_bytes`: largest event as it is stored; `depth`: deepest nesting.
    """

    def __init__(self, peer: Peer, event_bytes: int, depth: int) -> None:
        self._peer = peer
        self._event_bytes = event_bytes
        self._json = JsonObject(_Fields, depth)
        self._envelopes: dict[tuple[str | None, str | None], Envelope] = {}
        self._names = Names()

    def envelope(self, host: str | None, subject: str | None) -> Envelope:
        """Of events from `host` (the certificate's subject wins, the address stands in) in the stream `subject`."""
        key = (host, subject)
        known = self._envelopes.get(key)
        if known is None:
            peer = self._peer
            identity = peer.identity if peer.identity != peer.address or not host else host
            if len(self._envelopes) >= REMEMBERED:
                self._envelopes.clear()
            known = self._envelopes[key] = Envelope(PROTOCOL, source(PROTOCOL, identity), subject or "")
        return known

    def reject(self, reason: Reason, detail: str, raw: bytes, sequence: int) -> Reject:
        """One data frame's content that cannot be understood."""
        attributes = b'{"%b":%d}' % (Attribute.SEQUENCE.value.encode(), sequence)
        return self.envelope(None, None).reject(reason, detail, raw, unique_id(), attributes)

    def document(self, raw: bytes, unique: FrameIds, index: int, received_ms: int) -> Part | Fault:
        """The JSON of a J frame, byte for byte; or why not."""
        if len(raw) > self._event_bytes:
            return self._too_large(len(raw))
        fields = self._json.read(raw)
        if isinstance(fields, Fault):
            return fields
        if fields == _NONE:
            fields = _loosely(raw)
        metadata, agent = fields.metadata, fields.agent
        host = fields.host
        name = host.name if type(host) is _Host else None
        if not name and agent is not None:
            name = agent.hostname
        if not name and type(host) is str:
            name = host
        subject = None
        if metadata is not None:
            subject = metadata.raw_index or metadata.index or metadata.beat
        envelope = self.envelope(name, subject or fields.type)
        time = None if fields.time is None else utc(fields.time)
        event_id = self._id(fields, raw) or unique(index)
        if time is None:
            return envelope.event(event_id, rfc3339_ms(received_ms), raw, RECEIVED)
        return envelope.event(event_id, time, raw)

    def _id(self, fields: _Fields, raw: bytes) -> bytes | None:
        """The deterministic id, if the event has what it takes."""
        time, agent, log, metadata = fields.time, fields.agent, fields.log, fields.metadata
        if time is None:
            return None
        if metadata is not None and metadata.id:
            return self._names.by_id(metadata.id, time, fields.message, raw)
        if (
            agent is None or agent.id is None or agent.ephemeral_id is None
            or type(log) is not _Log or log.offset is None or type(log.file) is not Raw
        ):  # fmt: skip
            return None
        file = bytes(log.file)
        if file == b"null":
            return None
        return self._names.by_origin(agent.id, agent.ephemeral_id, file, log.offset, time, fields.message, raw)

    def pairs(self, frame: bytes, unique: FrameIds, index: int, received_ms: int) -> Part | Fault:
        """The pairs of a D frame as a JSON object; or why not. A repeated key's values become an array, in order."""
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
        return self.envelope(host, kind).event(unique(index), time or rfc3339_ms(received_ms), value, attributes)

    def _too_large(self, size: int) -> Fault:
        return Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self._event_bytes}")


class EventsFrame:
    """Data frames that are published together. See `headrace_common.session.Frame`."""

    __slots__ = ("_records", "_run", "acknowledged", "received_ms", "size", "ticket")

    def __init__(self, run: Run, ticket: Ticket, received_ms: int, records: Records) -> None:
        self._run = run
        self._records = records
        self.ticket = ticket
        self.received_ms = received_ms
        self.acknowledged = True
        self.size = run.size + FRAME_OVERHEAD * len(run) + OVERHEAD

    def spoiled(self, detail: str) -> Reject:
        """All of them as received, reason `internal`."""
        run = self._run
        raw = bytes(run.data[run.start : run.ends[-1]])
        return self._records.reject(Reason.INTERNAL, detail, raw, run.sequence(0))

    def parts(self) -> Iterator[Part | int]:
        """See `headrace_common.session.Frame.parts`."""
        run, data, received_ms = self._run, self._run.data, self.received_ms
        records, ids = self._records, unique_frame_ids()
        skip = DATA_HEADER if run.version == V2 else 0
        build = records.document if run.version == V2 else records.pairs
        at = run.start
        for index, end in enumerate(run.ends):
            piece = data[at + skip : end]
            raw = piece if type(piece) is bytes else bytes(piece)
            if len(raw) > LARGE:
                yield 0
            part = build(raw, ids, index, received_ms)
            yield part if type(part) is bytes else self._rejected(part, raw, index)
            at = end

    def _rejected(self, part: Part | Fault, raw: bytes, index: int) -> Part:
        assert isinstance(part, Fault)
        return self._records.reject(*part, raw, self._run.sequence(index))


def _loosely(raw: bytes) -> _Fields:
    """The fields of an object some of which have another type than Beats give them: those count as absent."""
    found: dict[str, Any] = {}
    for name, value in _read_loosely(raw).items():
        info = _NAMES.get(name)
        if info is not None:
            try:
                found[info.name] = _DECODERS[name](value)
            except msgspec.ValidationError:
                continue
    return _Fields(**found)


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


def _first(value: Any) -> str | None:
    found = value[0] if type(value) is list else value
    return found if type(found) is str else None
