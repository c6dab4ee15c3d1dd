"""Courier."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RECEIVED, Part, Told, framed, named, source
from tests.fuzz.truth.values import Document, document, moment

LONG: Final = 1024


class Event(NamedTuple):
    document: Document
    time: str | None = None
    host: Any = None
    type: Any = None
    path: str = "-"


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 1, 2, 3))):
        events = []
        for _ in range(s.choice((0, 1, 2, 5, 20))):
            written, time = moment(s) if s.perhaps(0.8) else (s.choice((None, 5)), None)
            kind, host = (s.choice(("", 5, "app", "é" * (LONG // 2), "x" * (LONG + 1))) for _ in range(2))
            fields = {"@timestamp": written, "type": kind, "path": "/é", "host": host}
            events.append(Event(document(s, fields, s.randrange(3)), time, host, kind, "/é"))
        nonce = s.choice((bytes(16), bytes(range(16))))
        for again in (events, events[len(events) // 2 :])[: s.choice((1, 2))]:  # the rest keeps its ids
            payload(found, again, nonce, s.choice(("JDAT", "EVNT")), s.randrange(10))
    return found


def payload(found: Told, events: Sequence[Event], nonce: bytes = bytes(16), kind: str = "JDAT", level: int = 9) -> None:
    stream = zlib.compress(found.inside(b"".join(framed(event.document.raw) for event in events)), level)
    size = 16 + len(stream) if kind == "JDAT" else 0xFFFF_FFFF
    found.sent.append([kind.encode() + size.to_bytes(4, "big") + nonce + stream])
    found.replies.append((nonce, len(events)))
    for index, (event, time, host, called, path) in enumerate(events):
        own = named(b"courier", nonce, (len(events) - index).to_bytes(4, "big"), event.raw)
        about: dict[str, Any] = {"nonce": nonce.hex()}
        if event.reason:
            about |= {"index": index}
            found.parts.append(Part(event.raw, own, "-", source("courier"), "", about, event.reason))
            continue
        about |= event.note | ({} if time else {"time": "received"})
        subject, origin = called if _names(called) else path, source("courier", host if _names(host) else ADDRESS)
        found.parts.append(Part(event.body, own, subject, origin, time or RECEIVED, about))


def _names(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text.encode()) <= LONG
