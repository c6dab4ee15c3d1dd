"""Forward, in msgpack and in JSON."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Sequence
from hashlib import sha512
from typing import Any, Final, NamedTuple

import msgpack
from headrace_common.session.inflate import zstd  # the standard library's, or its backport

from tests.fuzz.chance import Chance
from tests.fuzz.truth import NOW, RANDOM, RECEIVED, Part, Told, at, base64, named, source, tree
from tests.fuzz.truth.packing import NANOSECONDS, array, event_time, odd_map, of_json, packed
from tests.fuzz.truth.values import value

TIMES: Final[Sequence[Sequence[tuple[Any, str, bool, dict[str, Any]]]]] = [
    *[[(*event_time(seconds, each), each % 10**6 == 0, {}) for seconds in (NOW, 0, 2**32 - 3) for each in NANOSECONDS]]
    * 5,
    [(seconds, at(seconds) + "Z", True, {}) for seconds in (1, NOW, -3, 253_402_300_799, -62_135_596_800)],
    [
        (0.5, "1970-01-01T00:00:00.5Z", True, {}),
        (1.0, "1970-01-01T00:00:01Z", True, {}),
        (NOW + 0.25, "2023-11-14T22:15:23.25Z", True, {}),
        (1e-6, "1970-01-01T00:00:00.000001Z", False, {}),
        (NOW + 1e-6, "2023-11-14T22:15:23.000001Z", False, {}),
    ],
    [(time, RECEIVED, True, {"time": "received"}) for time in (None, 0, 0.0)],
    [(number, RECEIVED, True, {"time": "received", "group": group}) for number, group in ((-1, "start"), (-2, "end"))],
    [
        (time, "", True, {})
        for time in (253_402_300_800, -62_135_596_801, math.nan, 1e12, True, msgpack.ExtType(1, b"12345678"), "now")
    ],
]
"""By kind: a time, as it is stored ("": it is none), whether it is a whole millisecond, and the notes on it."""

NO_ENTRIES: Final = ([1], [1, 2], [1, [], 3], [NOW, "x"])
NO_CHUNKS: Final = (None, "", base64(sha512(b"").digest()[:16]), sha512(b"").hexdigest()[:32])
CHUNKS: Final = (
    "c1", "é", "0" * 31, "0" * 33, "0" * 31 + "g", " " + "0" * 31, "A" * 23, "A" * 25, "A" * 23 + "!", "A" * 23 + "\n", "_" * 24,
    "=" * 24, 17, b"\xff\x00",
)  # fmt: skip
HASHES: Final = ("0123456789abcdefABCDEF0000000000", base64(sha512(b"x").digest()[:16]), "/" * 24)
YEAR: Final = 366 * 86_400


class Entry(NamedTuple):
    """An entry: as it is sent, its record as JSON, the notes on it; why it is none. `whole`: its time is a whole millisecond."""

    raw: bytes
    body: str | bytes
    notes: dict[str, Any]
    time: str = ""
    whole: bool = True
    reason: str = ""


def _entry(s: Chance, *, sound: bool) -> Entry:
    """`sound`: it is one, and has no metadata."""
    if not sound and s.perhaps(0.1):
        return Entry(packed(s.choice(NO_ENTRIES)), "", {}, reason="bad_record")
    kind = s.choice(TIMES)
    time, stored, whole, notes = s.choice(
        kind[:-1] if sound and kind is TIMES[-1] else kind
    )  # a text would be a payload
    odd: set[str] = set()
    plain = {f"k{number}": value(s) for number in range(s.choice((0, 1, 3)))}
    record, body = odd_map(s, odd) if s.perhaps(0.5) else of_json(plain)
    written = packed(time)
    if not sound and s.perhaps(0.2):
        metadata, text = odd_map(s, odd)
        written = array([written, metadata])
        notes = notes | ({"metadata": json.loads(text)} if text != "{}" else {})
    raw = array([written, record])
    notes = notes | ({"notes": sorted(odd), "raw": base64(raw)} if odd else {})
    return Entry(raw, tree(body.encode()), notes, stored, whole, "" if stored else "bad_time")


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 1, 2, 3))):
        mode, tag, chunk = s.randrange(5), s.choice(("t", "t", "app.é", "x" * 40, "")), s.choice((*CHUNKS, None))
        entries = [_entry(s, sound=not mode) for _ in range(s.choice((0, 1, 2, 5, 20)) if mode else 1)]
        names, is_hash = True, s.perhaps(0.2)
        if is_hash:
            apart = s.choice((YEAR + 1, -YEAR - 1))
            chunk = s.choice((*HASHES, _go(s, apart)))
        elif s.perhaps(0.3):
            names, chunk = s.choice(((False, s.choice(NO_CHUNKS)), (True, _go(s, s.choice((0, YEAR, -YEAR))))))
        more = s.choice(({}, {"compressed": "gzip"}, {"x": b"y"}))
        message(found, entries, mode, chunk, tag, s.randrange(99), names=names, is_hash=is_hash, **more)
    return found


def _go(s: Chance, apart: int) -> str:
    """A chunk as fluent-logger-golang makes it: of a time so far from now."""
    return base64(struct.pack("<Q", NOW + apart) + s.randbytes(8))


def message(
    found: Told, entries: Sequence[Entry], mode: int, chunk: Any, tag: str, half: int, *, names: bool, is_hash: bool, **more: Any
) -> None:  # fmt: skip
    """Tells a message. `mode`: Message, Forward, PackedForward, the same with gzip, with zstd. `names`: its chunk names a
    sending; `is_hash`: or what it sends.
    """
    option = {"size": len(entries)} | ({} if chunk is None else {"chunk": chunk}) | more
    body = b"".join(each.raw for each in entries)
    sent = bytes((0x93 + (not mode),)) + packed(tag)
    if mode < 2:
        sent += array(each.raw for each in entries) if mode else body[1:]
    else:
        payload = found.inside(body)
        if mode == 3:
            payload = gzip.compress(payload[:half], mtime=0) + gzip.compress(payload[half:], mtime=0)
        elif mode == 4:
            payload = zstd.compress(payload)
        sent += packed(payload.decode("utf-8", "surrogateescape") if half % 2 else payload)
    found.sent.append([sent + packed(option)])
    found.replies += [] if chunk is None else [packed({"ack": chunk})]
    content = chunk if isinstance(chunk, bytes) else str(chunk).encode()
    ids = named(b"forward", tag.encode(), content, body)[:26] if names and chunk is not None else ""
    about = {} if chunk is None else {"chunk": {"$bin": base64(chunk)} if isinstance(chunk, bytes) else str(chunk)}
    for index, (raw, record, notes, time, whole, reason) in enumerate(entries):
        own = f"{ids}{index:08x}" if ids and not (is_hash and whole and not reason) else RANDOM
        noted = about | ({"tag": tag, "index": index} if reason else notes)
        time = "" if reason else time
        found.parts.append(Part(raw if reason else record, own, tag or "-", source("forward"), time, noted, reason))
