"""The state as records of its own log: a process that starts reads these and what follows.

Nothing else is appended between the parts, and no record says that the log is read from there before all are stored.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace_segment.store.records import Checkpoint, Numbering
from headrace_segment.store.state import Segment, Writer

if TYPE_CHECKING:
    from headrace_segment.store.fold import Fold

PART_BYTES: Final = 512 << 10
"""Bytes from which a part is closed."""

ROW: Final = 4096
"""Writers, and places in the index, of one row; a segment with more has several."""

_encode: Final = msgspec.msgpack.Encoder().encode


def checkpoint(fold: Fold) -> Iterator[Checkpoint]:
    """Yields the parts, to be stored one after the other. Only they may be applied to the fold meanwhile."""
    begin, rows, size = fold.next_offset, list[bytes](), 0
    for name, segment in fold.segments.items():
        writers = [(each, state.level, int(state.numbering), state.touched) for each, state in segment.writers.items()]
        for at in range(0, max(len(writers), len(segment.offsets), 1), ROW):
            places = [each[at : at + ROW].tolist() for each in (segment.offsets, segment.log_offsets, segment.times)]
            about = name, segment.start, segment.length, segment.modified
            rows.append(_encode((*about, writers[at : at + ROW], *places)))
            size += len(rows[-1])
            if size >= PART_BYTES:
                yield Checkpoint(begin, _encode((fold.log_time, rows)))
                rows, size = [], 0
    yield Checkpoint(begin, _encode((fold.log_time, rows)))


def restore(part: Checkpoint, segments: dict[str, Segment]) -> int:
    """Adds what a part has to that of the parts before it. Returns the log's time (Unix, ms)."""
    log_time, rows = msgspec.msgpack.decode(part.rows, type=tuple[int, list[bytes]])
    for row in rows:
        name, start, length, modified, writers, *places = msgspec.msgpack.decode(row, type=list[Any])
        segment = segments.setdefault(name, Segment(start, length, modified))
        for writer, level, numbering, touched in writers:
            segment.writers[writer] = Writer(level, Numbering(numbering), touched)
        for column, values in zip((segment.offsets, segment.log_offsets, segment.times), places, strict=True):
            column.extend(array("q", values))
    return log_time
