"""Logjam, as producers speak it."""

from __future__ import annotations

import gzip
from typing import Any, Final

from headrace_logjam.wire import METHODS, ZLIB, Meta, compress, encode_meta

from tests.fuzz.chance import Chance
from tests.fuzz.truth import RANDOM, RECEIVED, Part, Told, at, framed, named, source
from tests.fuzz.truth.values import document, moment

SOUND: Final = (b"shop-production", b"logs.x")
APP_ENVS: Final = (SOUND[0], b"a-b", b"ab", b"-" * 1024, b"-" * 1025, b"\xff-")
TOPICS: Final = (b"logs.x", b"logs", b"mobile\xff", b"xlogs", b"", b"events" + b"x" * 1018, b"events" + b"x" * 1019)
METAS: Final = ((0xCABD, 1), (0xCABD, 1), (0xCABD, 1), (0xBDCA, 1), (0xCABD, 2), (0xCABE, 1))
"""Tags and versions. The first four are sound."""

LAST: Final = 253_402_300_799_999
STARTED: Final = (0, 1_700_000_000_005, -1, None, "x", True, 1.5, LAST, LAST + 1, 10**30)
IDS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"request_id": None}, {"request_id": ""}, {"request_id": "r"}, {"uuid": [1]}, {"uuid": 0},
)  # fmt: skip
NO_ZONE: Final = "2026-11-21T09:59:34"


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 2, 5))):
        names = app_env, topic = s.choice((SOUND, (s.choice(APP_ENVS), s.choice(TOPICS))))
        written, time = s.choice((moment(s), (None, None), (NO_ZONE, None)))
        fields = {"started_ms": s.choice(STARTED), "started_at": written, **s.choice(IDS)}
        event, created, started = document(s, fields), s.choice((0, 1_600_000_000_000)), fields["started_ms"]
        time = f"{NO_ZONE}Z" if written == NO_ZONE else time
        time = (_instant(started) if type(started) is int and started <= LAST else None) or time or _instant(created)
        method, (tag, version), content = s.randrange(len(METHODS)), s.choice(METAS), found.inside(event.raw)
        body = gzip.compress(content, mtime=0) if method == ZLIB and s.perhaps(0.5) else compress(method, content)
        frames = [app_env, topic, body, encode_meta(Meta(method, 7, created, 9), tag=tag, version=version)]
        asks = s.perhaps(0.7)
        found.sent.append([b""] * asks + frames)
        sound = b"-" in app_env and app_env.isascii() and max(map(len, names)) <= 1024 and (tag, version) in METAS[:4]
        reason = event.reason if sound and topic.startswith((b"logs", b"events", b"mobile")) else "bad_message"
        heard = b"400 Bad Request" if reason else b"202 Accepted"
        found.replies += [(app_env if len(app_env) <= 1024 else b"unknown-unknown", heard)] * asks
        subject = "/".join(each[: 256 if reason else 2048].decode(errors="replace") for each in names)
        if reason:
            raw = b"".join(map(framed, frames))
            found.parts.append(Part(raw, RANDOM, subject, source("logjam"), "", {}, reason))
            continue
        named_by = fields.get("request_id") or fields.get("uuid") is not None
        own = named(b"logjam", *names, event.raw) if named_by else RANDOM
        about = event.note | ({} if time else {"time": "received"})
        found.parts.append(Part(event.body, own, subject, source("logjam"), time or RECEIVED, about))
    return found


def _instant(milliseconds: Any) -> str | None:
    return f"{at(milliseconds // 1000)}.{milliseconds % 1000:03d}Z" if milliseconds else None
