"""The pairs of a long or odd D frame as a JSON object, in steps, with memory that follows the frame's bytes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from headrace_common.record.json_text import PIECE, Bytes, text_of
from headrace_common.record.open_container import Members, OpenContainer, gather
from headrace_common.record.transcoding import Transcoder
from typing_extensions import override

from headrace_lumberjack.wire import DATA_HEADER, number_at, pair_count

PAIRS_AT_ONCE: Final = 512
"""Pairs that are read in one call, or between two pauses: at most a millisecond of work."""

NAMES: Final = (b'"host"', b'"type"', b'"@timestamp"')
"""Keys whose first value says where the event belongs, as JSON."""


class PairsTranscoder(Transcoder):
    """Writes the pairs of one D frame. `named`: the first values of `NAMES`, as far as they are short."""

    def __init__(self, most: int) -> None:
        super().__init__(1, most, lambda *_: None)
        self.named: dict[bytes, str | None] = {}

    @override
    def _object(self, raw: Bytes, path: bytes) -> Generator[None, None, int]:
        out = self._out = bytearray(b"{")
        count = pair_count(raw)
        top = OpenContainer(None, count, 0, path, is_map=True, is_key=False)
        members = top.members = Members(count)
        at = DATA_HEADER
        for number in range(count):
            if number and number % PAIRS_AT_ONCE == 0:
                self._pause()
                yield
            if members.crowded:
                yield from members.grow(out)
            top.place, top.count = at, number + 1
            middle = at + 4 + number_at(raw, at)
            end = middle + 4 + number_at(raw, middle)
            key = bytearray()
            self._text(key, raw[at + 4 : middle], top.key_path)
            self._member(top, bytes(key), "")
            value = raw[middle + 4 : end]
            self._text(out, value, top.current)
            name = bytes(key)
            if name in NAMES:
                self.named.setdefault(name, _short(value))
            at = end
        if members.counts:
            yield from gather(out, 0, len(members.counts))
        out += b"}"
        return at


def _short(value: Bytes) -> str | None:
    """Returns the text of a value; None if it is too long to name anything."""
    if len(value) > PIECE:
        return None
    content = bytes(value)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return text_of(content)
