"""Builds records from data frames, one by one, as the publisher asks. Every frame gives exactly one event or reject."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Final

from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Event, Part, Reject, rfc3339_ms, unique_frame_ids, unique_id
from headrace_common.record.json_object import SHORT, Fault, utc
from headrace_common.record.json_text import Bytes, object_of
from headrace_common.record.transcoding import TooLongError
from headrace_common.record.windows_1252 import noted, with_raw
from headrace_common.session.interface import PAUSE, SMALL, SMALL_PARTS, Frame, Pause, Peer, Ticket, paused
from headrace_common.session.json_events import RECEIVED, JsonEvents, JsonFrame
from headrace_common.session.memory import Memory
from typing_extensions import override

from headrace_lumberjack.fields import BeatsFields, host_of, stream_of
from headrace_lumberjack.identity import PROTOCOL, beginning, identity
from headrace_lumberjack.pairs import NAMES, PairsTranscoder
from headrace_lumberjack.wire import DATA_HEADER, FrameRun, pair_count

OVERHEAD: Final = 512
"""Bytes of memory that a frame takes beyond its own."""

FRAME_OVERHEAD: Final = 40
"""Bytes of memory that the position of one data frame takes."""

LARGE: Final = 1 << 18
"""An event of this many bytes is built in a slice of its own."""


class Records(JsonEvents[BeatsFields]):
    """What the events of one connection share. `event_bytes`: maximum size of an event as stored."""

    def __init__(self, peer: Peer, event_bytes: int, depth: int, memory: Memory) -> None:
        super().__init__(PROTOCOL, peer, BeatsFields, event_bytes, depth, memory)

    @override
    def names(self, fields: BeatsFields) -> tuple[str | None, str | None]:
        return host_of(fields), stream_of(fields)

    @override
    def time(self, fields: BeatsFields) -> str | None:
        return fields.time

    @override
    def begun(self, fields: BeatsFields, stream: str | None) -> bytes | None:
        return beginning(fields, stream)

    def reject(self, fault: Fault, raw: Bytes, sequence: int) -> Reject:
        """Makes a reject from one data frame whose content cannot be understood."""
        attributes = b'{"%b":%d}' % (Attribute.SEQUENCE.value.encode(), sequence)
        return self.envelope().reject(*fault, bytes(raw), unique_id(), attributes)

    def pairs(self, run: FrameRun, received_ms: int) -> Iterator[Part | Pause]:
        """Yields the pairs of the D frames of `run` as JSON objects, or rejects, and a pause before long work."""
        unique = unique_frame_ids()
        data = memoryview(run.data)
        for index in range(len(run)):
            frame = data[run.begin(index) : run.ends[index]]
            if len(frame) > LARGE:
                yield PAUSE
            part = yield from paused(self._object(frame, unique(index), received_ms))
            yield self.reject(part, frame, run.sequence(index)) if isinstance(part, Fault) else part

    def _object(self, frame: memoryview, name: bytes, received_ms: int) -> Generator[None, None, Event | Fault]:
        """Builds the event of a D frame. Pairs with a repeated key are repeated."""
        notes: list[bytes] = []
        if len(frame) > self.event_bytes + DATA_HEADER + 8 * pair_count(frame):
            return self._too_large(len(frame))
        transcoder = PairsTranscoder(self.event_bytes)
        try:
            value = yield from transcoder.write(frame)
        except TooLongError:
            return Fault(Reason.OVERSIZED, f"more than LIMITS__EVENT_BYTES ({self.event_bytes}) as JSON")
        host, kind, at = map(transcoder.named.get, NAMES)
        if transcoder.notes:
            raw = frame[DATA_HEADER - 4 :]  # from the number of its pairs on
            if with_raw(value, raw) > self.event_bytes:
                return self._too_large(with_raw(value, raw))
            notes = noted(tuple(sorted(transcoder.notes)), raw)
        time = None if at is None else utc(at)
        if not notes:
            attributes = RECEIVED if time is None else None
        else:
            attributes = object_of(notes if time else [*notes, RECEIVED[1:-1]])
            notes.clear()  # they may be as long as the event
        if len(value) + len(attributes or b"") > self.event_bytes:
            return self._too_large(len(value) + len(attributes or b""))
        return self.envelope(host, kind).event(name, time or rfc3339_ms(received_ms), value, attributes)

    def _too_large(self, size: int) -> Fault:
        return Fault(Reason.OVERSIZED, f"{size} bytes, LIMITS__EVENT_BYTES {self.event_bytes}")


class DocumentsFrame(JsonFrame[BeatsFields]):
    """J frames that are published together: their JSON, byte for byte, or rejects."""

    __slots__ = ("_run", "_unique")

    maker: Records

    def __init__(self, run: FrameRun, ticket: Ticket, received_ms: int, records: Records) -> None:
        super().__init__(records, ticket, received_ms, size_of(run), len(run))
        self._run: FrameRun | None = run
        self._unique = unique_frame_ids()

    def _whole(self) -> FrameRun:
        assert self._run is not None, "all records were made"
        return self._run

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all data frames as received, with reason `internal`."""
        run = self._whole()
        return self.maker.reject(Fault(Reason.INTERNAL, detail), run.data, run.sequence(0))

    @override
    def runs(self) -> Iterator[Part | Pause | list[Part]]:
        yield from super().runs()
        self._run = None  # its records now hold everything while they wait for Kafka

    @override
    def raws(self, first: int, last: int) -> Iterator[Bytes]:
        run = self._whole()
        data, whole, at = run.data, memoryview(run.data), run.begin(first) + DATA_HEADER
        for end in islice(run.ends, first, last):
            yield data[at:end] if end - at <= SHORT else whole[at:end]  # a long one is not copied
            at = end + DATA_HEADER

    @override
    def plain(self, index: int) -> list[Part]:
        run, core = self._whole(), native.core
        at = run.begin(index)
        piece = run.data[at : at + core.bytes_at_once]
        maker = self.maker
        return core.documents(maker.origin, self._unique.prefix, maker.limits, piece, index, self.count - index)[0]

    @override
    def name(self, index: int, fields: BeatsFields, event: Bytes) -> bytes:
        return identity(fields, event, self.maker.memory) or self._unique(index)

    @override
    def reject(self, index: int, fault: Fault, raw: Bytes) -> Reject:
        return self.maker.reject(fault, raw, self._whole().sequence(index))


class PairsFrame(Frame):
    """D frames that are published together."""

    __slots__ = ("_records", "_run", "received_ms", "size", "small", "ticket")

    def __init__(self, run: FrameRun, ticket: Ticket, received_ms: int, records: Records) -> None:
        self._run = run
        self._records = records
        self.ticket = ticket
        self.received_ms = received_ms
        self.size = size_of(run)
        self.small = self.size <= SMALL and len(run) <= SMALL_PARTS

    @override
    def spoiled(self, detail: str) -> Reject:
        """Returns all data frames as received, with reason `internal`."""
        return self._records.reject(Fault(Reason.INTERNAL, detail), self._run.data, self._run.sequence(0))

    @override
    def parts(self) -> Iterator[Part | Pause]:
        return self._records.pairs(self._run, self.received_ms)


def size_of(run: FrameRun) -> int:
    """Returns how many bytes a run takes in memory."""
    return len(run.data) + FRAME_OVERHEAD * len(run) + OVERHEAD
