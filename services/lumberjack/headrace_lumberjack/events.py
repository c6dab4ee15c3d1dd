"""Builds records from data frames, one by one, as the publisher asks. Every frame gives exactly one event or reject."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from json.encoder import encode_basestring
from typing import Final

from headrace_common.record import native
from headrace_common.record.contract import Attribute, Reason
from headrace_common.record.event import Part, Reject, unique_frame_ids, unique_id
from headrace_common.record.json_object import SHORT, Fault
from headrace_common.record.json_text import Bytes, letters_of
from headrace_common.session.interface import Run, Ticket
from headrace_common.session.json_events import JsonEvents, JsonFrame
from typing_extensions import override

from headrace_lumberjack.fields import BeatsFields, host_of, stream_of
from headrace_lumberjack.identity import beginning, identity
from headrace_lumberjack.wire import DATA_HEADER, HEADER, FrameRun, number_at

OVERHEAD: Final = 512
"""Bytes of memory that a frame takes beyond its own."""

FRAME_OVERHEAD: Final = 40
"""Bytes of memory that the position of one data frame takes."""


class Records(JsonEvents[BeatsFields]):
    """What the events of one connection share."""

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


class RunFrame(JsonFrame[BeatsFields]):
    """Data frames that are published together. The JSON of a J frame goes on byte for byte; the pairs of a D frame as a JSON
    object, with a unique id. A D frame that cannot be understood is rejected with its header.
    """

    __slots__ = ("_run", "_unique")

    maker: Records

    def __init__(self, run: FrameRun, ticket: Ticket, received_ms: int, records: Records) -> None:
        size = len(run.data) + FRAME_OVERHEAD * len(run) + OVERHEAD
        super().__init__(records, ticket, received_ms, size, len(run))
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
    def runs(self) -> Iterator[Run]:
        yield from super().runs()
        self._run = None  # its records now hold everything while they wait for Kafka

    @override
    def raws(self, first: int, last: int) -> Iterator[Bytes]:
        run = self._whole()
        data, whole, at = run.data, memoryview(run.data), run.begin(first)
        for end in islice(run.ends, first, last):
            if run.is_json:
                at += DATA_HEADER
                yield data[at:end] if end - at <= SHORT else whole[at:end]  # a long one is not copied
            else:
                yield object_of_pairs(whole[at:end], self.maker.event_bytes)
            at = end

    @override
    def plain(self, index: int) -> list[Part]:
        run, core, maker = self._whole(), native.core, self.maker
        if not run.is_json:
            return []
        at = run.begin(index)
        piece = run.data[at : at + core.bytes_at_once]
        return core.documents(maker.origin, self._unique.prefix, maker.limits, piece, index, self.count - index)[0]

    @override
    def name(self, index: int, fields: BeatsFields, event: Bytes) -> bytes:
        own = identity(fields, event, self.maker.memory) if self._whole().is_json else None
        return own or self._unique(index)

    @override
    def reject(self, index: int, fault: Fault, raw: Bytes) -> Reject:
        run = self._whole()
        if not run.is_json:
            raw = run.data[run.begin(index) : run.ends[index]]
        return self.maker.reject(fault, raw, run.sequence(index))


def object_of_pairs(frame: Bytes, most: int) -> bytes:
    """Returns the pairs of a D frame as they came, a repeated key and bytes that are not UTF-8, too; of an object of more than
    `most` bytes at least so many that this shows.
    """
    out, at = bytearray(b"{"), DATA_HEADER
    for number in range(2 * number_at(frame, HEADER)):
        if number:
            out += b":" if number % 2 else b","
        end = at + 4 + number_at(frame, at)
        out += b'"'
        for letters in letters_of(frame[at + 4 : end]):
            out += encode_basestring(letters)[1:-1].encode("utf-8", "surrogateescape")
            if len(out) > most:
                return bytes(out)
        out += b'"'
        at = end
    out += b"}"
    return bytes(out)
