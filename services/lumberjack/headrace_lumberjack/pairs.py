"""The pairs of a long or odd D frame as a JSON object, in steps, with memory that follows the frame's bytes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import orjson
from headrace_common.record.contract import Note
from headrace_common.record.json_text import PIECE, Bytes, write_text
from headrace_common.record.transcoding import Keys, TooLongError

from headrace_lumberjack.wire import DATA_HEADER, number_at, pair_count

PAIRS_AT_ONCE: Final = 512
"""Pairs that are read in one call, or between two pauses: at most a millisecond of work."""

NAMES: Final = (b'"host"', b'"type"', b'"@timestamp"')
"""Keys whose first value says where the event belongs, as JSON."""


class PairsTranscoder:
    """Writes the pairs of one D frame; those with a repeated key are repeated. `named`: the first values of `NAMES`, as far as
    they are short; `notes`: why JSON cannot hold the frame exactly.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.named: dict[bytes, str | None] = {}
        self.notes: set[Note] = set()

    def write(self, raw: Bytes) -> Generator[None, None, bytearray]:
        """Returns the object; yields between steps. Raises `TooLongError`."""
        out, keys, known, at = bytearray(b"{"), Keys(), set[int](), DATA_HEADER
        for number in range(pair_count(raw)):
            if number:
                out += b","
                if number % PAIRS_AT_ONCE == 0:
                    yield
            middle = at + 4 + number_at(raw, at)
            end = middle + 4 + number_at(raw, middle)
            begin = len(out)
            whole = write_text(out, raw[at + 4 : middle])
            key = bytes(memoryview(out)[begin:])
            if keys.repeated(known, key):
                self.notes.add(Note.REPEATED_KEYS)
            out += b":"
            begin = len(out)
            if not write_text(out, raw[middle + 4 : end]) or not whole:
                self.notes.add(Note.INVALID_UTF8)
            if key in NAMES and key not in self.named:
                self.named[key] = orjson.loads(memoryview(out)[begin:]) if end - middle <= PIECE else None
            if len(out) > self._most:
                raise TooLongError
            at = end
        out += b"}"
        return out
