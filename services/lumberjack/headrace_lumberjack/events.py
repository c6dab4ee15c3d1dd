"""Builds records from data frames, one by one, as the publisher asks. Every frame gives exactly one event or reject."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

import orjson
from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.encoding import length
from headrace_common.record.event import (
    Envelope,
    Event,
    FrameIds,
    Part,
    Reject,
    rfc3339_ms,
    source,
    unique_frame_ids,
    unique_id,
)
from headrace_common.record.json_object import SHORT, Fault, JsonObject, utc
from headrace_common.record.json_text import Bytes, object_of
from headrace_common.record.transcoding import TooLongError
from headrace_common.session.interface import AT_ONCE, PAUSE, SMALL, Frame, Pause, Peer, Ticket, paused, singly
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_lumberjack.fields import BeatsFields, host_of, stream_of
from headrace_lumberjack.identity import PROTOCOL, Names
from headrace_lumberjack.pairs import NAMES, PAIRS_AT_ONCE, PairsTranscoder
from headrace_lumberjack.wire import DATA_HEADER, FrameRun, pair_count, pairs

OVERHEAD: Final = 512
"""Bytes of memory that a frame takes beyond its own."""

FRAME_OVERHEAD: Final = 40
"""Bytes of memory that the position of one data frame takes."""

LARGE: Final = 1 << 18
"""An event of this many bytes is built in a slice of its own."""

NAME_BYTES: Final = 1024
"""Longest text that is accepted as the name of a host or index: it goes into a header of every event and stays in memory."""

KEY_BYTES: Final = 2048
"""Longest key of an origin that is kept."""

RECEIVED: Final = b'{"%b":"received"}' % Attribute.TIME.value.encode()

MILLISECONDS: Final = frozenset(f"{number:03d}Z" for number in range(1000))
"""The end of a time as Beats write it; the whole time then has `TIME_BYTES` bytes."""

TIME_BYTES: Final = len("2026-11-21T09:30:00.000Z")


class Records:
    """State that the frames of one connection share: their origin, the limits, and the envelopes encoded once.

    `event_bytes`: maximum size of an event as stored; `depth`: maximum nesting depth; `memory`: where encoded envelopes are
    kept, for all connections.
    """

    def __init__(self, peer: Peer, event_bytes: int, depth: int, memory: Memory) -> None:
        self._peer = peer
        self._event_bytes = event_bytes
        self._depth = depth
        self._json = JsonObject(BeatsFields, depth)
        self._memory = memory
        self._names = Names(memory)

    def envelope(self, host: str | None, subject: str | None) -> Envelope:
        """Returns the envelope of events from `host` in the stream `subject`. A certificate's subject overrides `host`; the
        address replaces a missing one.
        """
        peer = self._peer
        identity = host if host and peer.anonymous and _names(host) else peer.identity
        stream = subject if subject and _names(subject) else ""
        key = (Records, identity, stream)
        known: Envelope | None = self._memory.get(key)
        if known is None:
            known = Envelope(PROTOCOL, source(PROTOCOL, identity), stream)
            self._memory.put(key, known, known.size + 4 * (len(identity) + len(stream)))
        return known

    def reject(self, reason: Reason, detail: str, raw: Bytes, sequence: int) -> Reject:
        """Makes a reject from one data frame whose content cannot be understood."""
        attributes = b'{"%b":%d}' % (Attribute.SEQUENCE.value.encode(), sequence)
        return self.envelope(None, None).reject(reason, detail, bytes(raw), unique_id(), attributes)

    def documents(self, run: FrameRun, received_ms: int) -> Iterator[Part | Pause | list[Part]]:
        """Returns the JSON of the J frames of `run`, byte for byte, or rejects, and a pause before long work."""
        core, data, count, unique = native.core, run.data, len(run), unique_frame_ids()
        limits = min(self._event_bytes, SHORT), self._depth

        def made(index: int) -> list[Part]:
            at = run.begin(index)
            piece = data[at : at + core.bytes_at_once]
            return core.documents(self._origin, unique.prefix, limits, piece, index, count - index)[0]

        return native.by_turns(count, made, lambda first, last: self._documents(run, first, last, unique, received_ms))

    def _origin(self, key: bytes, raw: bytes) -> native.Origin | None:
        """Returns what `native.Find` asks for."""
        place = (native.Find, self._peer.identity, self._peer.anonymous, key)
        known: native.Origin | None = self._memory.get(place)
        if known is None and len(key) <= KEY_BYTES:
            fields = self._json.read(raw)
            if isinstance(fields, Fault):
                return None
            subject = stream_of(fields)
            envelope, begun = self.envelope(host_of(fields), subject), self._names.begun(fields, subject)
            known = envelope.pieces, begun
            self._memory.put(place, known, len(key) + len(begun or b"") + envelope.size)
        return known

    def _documents(
        self, run: FrameRun, first: int, last: int, unique: FrameIds, received_ms: int
    ) -> Iterator[Part | Pause]:
        """Yields the same as `documents`, from `first` up to `last`. Reuses what an event shares with the one before."""
        data, at, most = run.data, run.begin(first) + DATA_HEADER, self._event_bytes
        read, name_of = self._json.read, self._names.of
        now = rfc3339_ms(received_ms)
        host = subject = None
        envelope = self.envelope(host, subject)
        before, between, behind = envelope.around(TIME_BYTES)
        whole = memoryview(data)
        second = ""  # the last time with milliseconds, up to its decimal point
        for index, end in enumerate(islice(run.ends, first, last), first):
            size = end - at
            raw: Bytes = data[at:end] if size <= SHORT else whole[at:end]  # a long one is not copied
            at = end + DATA_HEADER
            if size > most:
                fields: BeatsFields | Fault = self._too_large(size)
            else:
                fields = read(raw) if type(raw) is bytes else (yield from paused(self._json.steps(raw)))
            if isinstance(fields, Fault):
                yield (yield from self._mended(raw, fields, run.sequence(index), unique(index), now))
                continue
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
            if size <= SHORT:
                name = name_of(fields, subject, written, raw) or unique(index)
            else:
                name = (yield from paused(self._names.of_long(fields, subject, written, raw))) or unique(index)
            if text[:20] != second or text[20:] not in MILLISECONDS:
                time = utc(text)
                if time is None:
                    yield envelope.event(name, now, raw, RECEIVED)
                    continue
                if time != written or text[20:] not in MILLISECONDS:
                    yield envelope.event(name, time, raw)
                    continue
                second = text[:20]
            yield b"".join((length(size), raw, before, name, between, written, behind))  # type: ignore[misc]  # as `Envelope.event`

    def _mended(
        self, raw: Bytes, fault: Fault, sequence: int, unique: bytes, now: bytes
    ) -> Generator[Pause, None, Part]:
        """Yields the event of JSON whose texts are not all UTF-8, as `documents` makes it of others, or a reject."""
        found = yield from paused(self._json.mend(raw, fault, self._event_bytes))
        if isinstance(found, Fault):
            return self.reject(*found, raw, sequence)
        fields, event = found
        subject, text = stream_of(fields), fields.time
        time = None if text is None else utc(text)
        name = None
        if text is not None:
            name = yield from paused(self._names.of_long(fields, subject, text.encode(), event.value))
        attributes = event.attributes(None if time else RECEIVED)
        return self.envelope(host_of(fields), subject).event(name or unique, time or now, event.value, attributes)

    def pairs(self, run: FrameRun, received_ms: int) -> Iterator[Part | Pause]:
        """Yields the pairs of the D frames of `run` as JSON objects, or rejects, and a pause before long work."""
        unique = unique_frame_ids()
        data = memoryview(run.data)
        for index in range(len(run)):
            frame = data[run.begin(index) : run.ends[index]]
            if len(frame) > LARGE:
                yield PAUSE
            part = yield from paused(self._object(frame, unique(index), received_ms))
            yield self.reject(*part, frame, run.sequence(index)) if isinstance(part, Fault) else part

    def _object(self, frame: memoryview, name: bytes, received_ms: int) -> Generator[None, None, Event | Fault]:
        """Builds the event of a D frame. The values of a repeated key become an array, in order."""
        count = pair_count(frame)
        notes: list[bytes] = []
        if len(frame) > self._event_bytes + DATA_HEADER + 8 * count:
            return self._too_large(len(frame))
        record = _plainly(bytes(frame)) if count <= PAIRS_AT_ONCE and len(frame) <= SHORT else None
        if record is not None:
            value: Bytes | bytearray = orjson.dumps(record)
            host, kind, at = (record.get(each) for each in ("host", "type", "@timestamp"))
        else:
            transcoder = PairsTranscoder(self._event_bytes)
            try:
                value = yield from transcoder.write(frame)
            except TooLongError:
                return Fault(Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({self._event_bytes}) as JSON")
            host, kind, at = map(transcoder.named.get, NAMES)
            notes = transcoder.notes()
        time = None if at is None else utc(at)
        if not notes:
            attributes = RECEIVED if time is None else None
        else:
            attributes = object_of(notes if time else [*notes, RECEIVED[1:-1]])
            notes.clear()  # they may be as long as the event
        if len(value) + len(attributes or b"") > self._event_bytes:
            return self._too_large(len(value) + len(attributes or b""))
        return self.envelope(host, kind).event(name, time or rfc3339_ms(received_ms), value, attributes)

    def _too_large(self, size: int) -> Fault:
        return Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self._event_bytes}")


class EventsFrame(Frame):
    """Data frames that are published together."""

    __slots__ = ("_records", "_run", "received_ms", "size", "small", "ticket")

    def __init__(self, run: FrameRun, ticket: Ticket, received_ms: int, records: Records) -> None:
        self._run: FrameRun | None = run
        self._records = records
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = len(run.data) + FRAME_OVERHEAD * len(run) + OVERHEAD
        self.small = len(run.data) <= SMALL and len(run) <= AT_ONCE

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all data frames as received, with reason `internal`."""
        run = self._run
        assert run is not None, "all records were made"
        return self._records.reject(Reason.INTERNAL, detail, run.data, run.sequence(0))

    @override
    def parts(self) -> Iterator[Part | Pause]:
        return singly(self.runs())

    @override
    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        run = self._run
        assert run is not None, "called once"
        make = self._records.documents if run.is_json else self._records.pairs
        yield from make(run, self.received_ms)
        self._run = None  # its records now hold everything while they wait for Kafka


def _plainly(frame: bytes) -> dict[str, str] | None:
    """Returns the pairs of a D frame if all of them are UTF-8 and no key is repeated."""
    try:
        record = {key.decode(): value.decode() for key, value in pairs(frame)}
    except UnicodeDecodeError:
        return None
    return record if len(record) == pair_count(frame) else None


def _names(text: str) -> bool:
    """Returns whether a text is short enough to be accepted as a name."""
    return len(text) <= NAME_BYTES and len(text.encode("utf-8", "replace")) <= NAME_BYTES
