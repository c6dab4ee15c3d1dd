"""Courier."""

from __future__ import annotations

import zlib
from typing import Any, Final

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RECEIVED, Part, Told, framed, named, source
from tests.fuzz.truth.values import document, moment

LONG: Final = 1024
NAMES: Final[tuple[Any, ...]] = ("", 5, "app", "é" * (LONG // 2), "x" * (LONG + 1))


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 1, 2, 3))):
        events = [_event(s) for _ in range(s.choice((0, 1, 2, 5, 20)))]
        nonce = s.choice((bytes(16), bytes(range(16))))
        for again in (events, events[len(events) // 2 :])[: s.choice((1, 2))]:  # the rest keeps its ids
            kind = s.choice((b"JDAT", b"EVNT"))
            stream = zlib.compress(found.inside(b"".join(framed(raw) for raw, _ in again)), s.randrange(10))
            size = 16 + len(stream) if kind == b"JDAT" else 0xFFFF_FFFF
            found.sent.append([kind + size.to_bytes(4, "big") + nonce + stream])
            found.replies.append((nonce, len(again)))
            for index, (raw, part) in enumerate(again):
                own = named(b"courier", nonce, (len(again) - index).to_bytes(4, "big"), raw)
                about = {"nonce": nonce.hex(), **({"index": index} if part.reason else part.attributes)}
                found.parts.append(part._replace(id=own, attributes=about))
    return found


def _event(s: Chance) -> tuple[bytes, Part]:
    """An event as it is sent, and as it is stored but for its place in a payload."""
    written, time = moment(s) if s.perhaps(0.8) else (s.choice((None, 5)), None)
    kind, host = s.choice(NAMES), s.choice(NAMES)
    found = document(s, {"@timestamp": written, "type": kind, "path": "/é", "host": host}, s.randrange(3))
    if found.reason:
        return found.raw, Part(found.raw, "", "-", source("courier"), "", {}, found.reason)
    subject, origin = kind if _names(kind) else "/é", source("courier", host if _names(host) else ADDRESS)
    about = found.note | ({} if time else {"time": "received"})
    return found.raw, Part(found.body, "", subject, origin, time or RECEIVED, about)


def _names(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.encode()) <= LONG
