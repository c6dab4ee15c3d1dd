"""Segments, in both dialects."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tests.fuzz.chance import Chance
from tests.fuzz.truth import RECEIVED, Part, Told, named, source

W1, W2 = bytes(range(16)), bytes(range(240, 256))
DATA: Final = (b"", b"x", "é".encode(), bytes(300))


class Speech:
    """What two writers append, each to a segment of its own or both to one. `today`: in today's dialect."""

    def __init__(self, *, today: bool, segments: Sequence[str] = "ab") -> None:
        self.told = Told()
        self._today = today
        self._segments = dict(zip((W1, W2), segments, strict=True))
        self._levels = {W1: 0, W2: 0}
        if today:
            self.told.sent += [[message(-127, struct.pack(">ii", 17, 5))]]
            self.told.sent += [[message(20, bytes(8) + text(name) + bytes(5))] for name in segments]
        for writer, name in self._segments.items():
            setup = bytes(8) + writer + text(name) + text("") if today else writer + text(name)
            self.told.sent.append([message(1, setup)])

    def append(self, writer: bytes, events: Sequence[bytes], gap: int = 0, times: int = 1, most: int = 1 << 16) -> None:
        """Appends a block. Levels count bytes, and what comes again is stored once; today's are numbers, of which `gap` are left
        out. `most`: bytes of an event.
        """
        content = b"".join(message(0, data) for data in events)
        before = self._levels[writer]
        level = self._levels[writer] = before + (gap + len(events) if self._today else len(content))
        for left, data in enumerate(events, 1 - len(events)):
            if not self._today:
                before += 8 + len(data)
            behind = level + left if self._today else before
            about = {"writer": writer.hex(), "level": behind, "time": "received"}
            segment = self._segments[writer]
            own = named(b"segment", segment.encode(), writer, behind.to_bytes(8, "big"), data)
            refused = len(data) > most
            part = Part(
                data, own, segment, source("segment"), "" if refused else RECEIVED, about, "oversized" * refused
            )
            self.told.parts.append(part)
        self.told.parts.sort(key=lambda part: str(part.attributes["writer"]))
        self.told.replies = sorted((writer, level) for writer, level in self._levels.items() if level)
        if self._today:
            block = message(3, writer + content)
            block += message(4, writer + struct.pack(">iiiqq", len(content), 0, len(events), level, 1))
        else:
            block = message(3, writer + struct.pack(">qi", level - len(content), len(content))) + content
            block += message(4, writer + struct.pack(">qi", level, len(content)))
        self.told.sent += [[block]] * times


def told(s: Chance, *, today: bool) -> Told:
    speech = Speech(today=today, segments=s.choice(("ab", "aa", "ba")))
    for _ in range(s.choice((1, 3, 6))):
        events = [s.choice(DATA) for _ in range(s.choice((1, 1, 2, 5)))]
        speech.append(
            s.choice((W1, W2)), events, s.choice((0, 0, 1, 2**40)) * today, 1 if today else s.choice((1, 1, 2))
        )
    return speech.told


def message(kind: int, body: bytes) -> bytes:
    return struct.pack(">iI", kind, len(body)) + body


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()
