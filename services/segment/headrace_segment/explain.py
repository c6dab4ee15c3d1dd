"""Messages of the Streaming Service protocol as `explain` shows them. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.explain import PEER, SAMPLE, Explanation, Part, Unit, cut_text, fields

from headrace_segment import questions
from headrace_segment.session.dialects import HELLO, SegmentSession
from headrace_segment.settings import FRAME_BYTES, SegmentSection, SegmentSettings, limits_of
from headrace_segment.store.outcomes import Appended, Changed, Opened
from headrace_segment.store.records import NO_VALUE
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER, MAX_BODY, Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.stream import MessageStream

_SESSION: Final = bytes(16)


class SegmentWalker:
    """See `Walker`. A stream that begins with Hello is in today's dialect."""

    def __init__(self, frame_bytes: int) -> None:
        self._stream = MessageStream(frame_bytes, self._accept)
        self._first = b""
        self._table: Table | None = None
        self._broken = False

    def _accept(self, kind: int, length: int) -> int:
        inside = kind == Kind.BEGIN_APPEND_BLOCK and self._table is original.MESSAGES
        return min(length, original.BEGIN_BYTES) if inside else length

    def feed(self, data: bytes) -> Iterator[Unit]:
        """See `Walker`."""
        if self._broken:
            return
        if self._table is None:
            self._first += data
            if len(self._first) < len(HELLO):
                return
            self._table = today.MESSAGES if self._first.startswith(HELLO) else original.MESSAGES
            data = self._first
        self._stream.feed(data)
        try:
            while (found := self._stream.next()) is not None:
                yield self._unit(*found)
        except ProtocolError:
            self._broken = True

    def _unit(self, kind: int, body: bytes) -> Unit:
        assert self._table is not None
        offset = self._stream.offset
        known = kind in set(Kind)
        name = Kind(kind).name if known else f"type {kind}"
        parts = fields(
            HEADER.pack(kind, len(body)), offset, (4, f"type {kind}: {name}"), (4, "the length of what follows")
        )
        values = ""
        if kind in self._table:
            try:
                value = self._table.decode(kind, body)
                names = (each.name for each in dataclasses.fields(value))
                values = ", ".join(f"{each} {_shown(getattr(value, each))}" for each in names)
            except ProtocolError as error:
                values = str(error)
        meaning = values or name.lower().replace("_", " ")
        if body:
            parts.append(Part(offset + HEADER.size, len(body), body[:SAMPLE], values or "its body"))
        return Unit(name, offset, HEADER.size + len(body), cut_text(meaning), parts)


def _shown(value: object) -> str:
    if not isinstance(value, bytes):
        return cut_text(str(value))
    if len(value) == today.WRITER_BYTES:
        return value.hex()
    return f"({len(value):,} bytes) {value[:SAMPLE]!r}"


def _stream(most: int, given: SegmentSettings | None) -> tuple[SegmentWalker, SegmentSession]:
    limits, section = (given.limits, given.segment) if given else (LimitSettings(), SegmentSection())
    return SegmentWalker(limits.frame_bytes), SegmentSession(PEER, limits_of(limits, section))


def _answer(question: object) -> object:
    """Answers like a store with new and empty segments."""
    if isinstance(question, questions.OpenSession):
        return Opened(question.segment, question.writer, _SESSION, question.numbering.first)
    if isinstance(question, questions.AppendBlock):
        return Appended(question.segment, question.writer, _SESSION, question.after, len(question.data))
    if isinstance(question, questions.ReadBytes):
        return questions.BytesRead(b"", at_tail=True, end_of_segment=False)
    if isinstance(question, questions.DescribeSegment):
        return questions.SegmentDescription(0, 0, sealed=False, modified=0)
    if isinstance(question, questions.ReadAttribute):
        return questions.AttributeRead(NO_VALUE)
    assert isinstance(question, questions.ChangeSegment)
    return Changed(question.segment, question.change)


def _begins(data: bytes) -> bool:
    kind, length = HEADER.unpack_from(data) if len(data) >= HEADER.size else (0, MAX_BODY + 1)
    return kind in set(Kind) and length <= MAX_BODY


def _replies() -> Callable[[bytes], list[str]]:
    walker = SegmentWalker(FRAME_BYTES)  # the first reply says which dialect all are of
    return lambda data: [f"{unit.kind} {unit.meaning}" for unit in walker.feed(data)]


EXPLANATION: Final = Explanation(
    begins=_begins,
    stream=_stream,
    replies=_replies,
    answer=_answer,
    note="That is for segments that are new and empty.",
)
