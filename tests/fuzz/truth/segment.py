"""Segments, in both dialects."""

from __future__ import annotations

from typing import Final

from tests.fuzz.chance import Chance
from tests.fuzz.truth import RECEIVED, Part, Told, named, source
from tests.segment import speaking, speaking_today
from tests.segment.recorded import W1, W2

DATA: Final = (b"", b"x", "é".encode(), bytes(300))


def told(s: Chance, *, today: bool) -> Told:
    """Two writers append, each to a segment of its own or both to one."""
    found, segments, levels = Told(), dict(zip((W1, W2), s.choice(("ab", "aa", "ba")), strict=True)), {W1: 0, W2: 0}
    if today:
        found.sent += [[speaking_today.HELLO], *([speaking_today.create(name)] for name in segments.values())]
    setup = speaking_today.setup if today else speaking.setup
    found.sent += [[setup(segment, writer)] for writer, segment in segments.items()]
    for _ in range(s.choice((1, 3, 6))):
        writer, events = s.choice((W1, W2)), [s.choice(DATA) for _ in range(s.choice((1, 1, 2, 5)))]
        level = levels[writer]
        if today:  # levels are numbers, of which some may be left out
            level += s.choice((0, 0, 1, 2**40))
            found.sent.append([speaking_today.append(level + len(events), *events, writer=writer)])
        else:  # they count bytes; what comes again is stored once
            found.sent += [[speaking.block(level, speaking.events(*events), writer)]] * s.choice((1, 1, 2))
        for data in events:
            level += 1 if today else 8 + len(data)
            own = named(b"segment", segments[writer].encode(), writer, level.to_bytes(8, "big"), data)
            about = {"writer": writer.hex(), "level": level, "time": "received"}
            found.parts.append(Part(data, own, segments[writer], source("segment"), RECEIVED, about))
        levels[writer] = level
    found.parts.sort(key=lambda part: str(part.attributes["writer"]))
    found.replies = sorted((writer, level) for writer, level in levels.items() if level)
    return found
