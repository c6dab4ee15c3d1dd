"""Logjam, as producers speak it."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import lz4.block
import snappy

from tests.fuzz.chance import Chance
from tests.fuzz.truth import RANDOM, RECEIVED, Part, Told, at, framed, named, source
from tests.fuzz.truth.values import Document, document, moment

SOUND: Final = (b"shop-production", b"logs.x")
APP_ENVS: Final = (SOUND[0], b"a-b", b"ab", b"-" * 1024, b"-" * 1025, b"\xff-")
TOPICS: Final = (b"logs.x", b"logs", b"mobile\xff", b"xlogs", b"", b"events" + b"x" * 1018, b"events" + b"x" * 1019)
METAS: Final = ((0xCABD, 1), (0xCABD, 1), (0xCABD, 1), (0xBDCA, 1), (0xCABD, 2), (0xCABE, 1))
LAST: Final = 253_402_300_799_999
STARTED: Final = (0, 1_700_000_000_005, -1, None, "x", True, 1.5, LAST, LAST + 1, 10**30)
IDS: Final[tuple[dict[str, Any], ...]] = (
    {}, {"request_id": None}, {"request_id": ""}, {"request_id": "r"}, {"uuid": [1]}, {"uuid": 0},
)  # fmt: skip
NO_ZONE: Final = "2026-11-21T09:59:34"


def _lz4(data: bytes) -> bytes:
    return framed(data)[:4] + lz4.block.compress(data, store_size=False)


def _snappy(data: bytes) -> bytes:
    return bytes(snappy.compress(data))


WAYS: Final[tuple[tuple[int, Callable[[bytes], bytes]], ...]] = (
    (0, bytes), (1, zlib.compress), (1, partial(gzip.compress, mtime=0)),  # no time of day, so that a seed makes the same bytes
    (2, _snappy), (3, _lz4),
)  # fmt: skip


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 2, 5))):
        names = s.choice((SOUND, (s.choice(APP_ENVS), s.choice(TOPICS))))
        written, time = s.choice((moment(s), (None, None), (NO_ZONE, None)))
        time = f"{NO_ZONE}Z" if written == NO_ZONE else time
        fields = {"started_ms": s.choice(STARTED), "started_at": written, **s.choice(IDS)}
        event, created = document(s, fields), s.choice((0, 1_600_000_000_000))
        started = fields["started_ms"]
        time = (_instant(started) if type(started) is int and started <= LAST else None) or time or _instant(created)
        message(found, event, fields, time, names, s.choice(METAS), created, s.choice(WAYS), asks=s.perhaps(0.7))
    return found


def _instant(milliseconds: Any) -> str | None:
    return f"{at(milliseconds // 1000)}.{milliseconds % 1000:03d}Z" if milliseconds else None


def message(
    found: Told, event: Document, fields: Any, time: str | None, names: tuple[bytes, bytes] = SOUND,
    meta: tuple[int, int] = METAS[0], created: int = 0, way: Any = WAYS[0], *, asks: bool = True,
) -> None:  # fmt: skip
    (app_env, topic), (tag, version), (method, compress) = names, meta, way
    frames = [
        app_env,
        topic,
        compress(found.inside(event.raw)),
        struct.pack(">HBBIQQ", tag, method, version, 7, created, 9),
    ]
    found.sent.append([b""] * asks + frames)
    sound = (
        b"-" in app_env and app_env.isascii() and max(map(len, names)) <= 1024 and meta in ((0xCABD, 1), (0xBDCA, 1))
    )
    reason = event.reason if sound and topic.startswith((b"logs", b"events", b"mobile")) else "bad_message"
    heard = b"400 Bad Request" if reason in ("bad_json", "bad_record", "bad_message") else b"202 Accepted"
    found.replies += [(app_env if len(app_env) <= 1024 else b"unknown-unknown", heard)] * asks
    most = 256 if reason else 2048
    subject = "/".join(each[:most].decode(errors="replace") for each in names)
    if reason:
        found.parts.append(Part(b"".join(map(framed, frames)), RANDOM, subject, source("logjam"), "", {}, reason))
        return
    own = named(b"logjam", *names, event.raw) if fields.get("request_id") or fields.get("uuid") is not None else RANDOM
    about = event.note | ({} if time else {"time": "received"})
    found.parts.append(Part(event.body, own, subject, source("logjam"), time or RECEIVED, about))
