"""Messages of the Streaming Service protocol, of either side, explained. Pure."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Final

from headrace_common.operations.errors import ProtocolError
from headrace_segment.wire import messages as today
from headrace_segment.wire import original
from headrace_segment.wire.codes import HEADER, Kind
from headrace_segment.wire.layout import Table
from headrace_segment.wire.stream import MessageStream

from headrace_cli.operating.wire.explain.walkers.units import SAMPLE, Part, Unit, cut_text, fields

_HELLO: Final = struct.pack(">i", Kind.HELLO)


class SegmentWalker:
    """See `Walker`. What begins with Hello is today's dialect."""

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
            if len(self._first) < len(_HELLO):
                return
            self._table = today.MESSAGES if self._first.startswith(_HELLO) else original.MESSAGES
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
