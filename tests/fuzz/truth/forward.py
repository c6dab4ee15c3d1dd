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
FORMS: Final = ("message", "forward", "packed", "gzip", "zstd")


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
    times = s.choice(TIMES)
    # in a message alone, a text would be a payload
    time, stored, whole, notes = s.choice(times[:-1] if sound and times is TIMES[-1] else times)
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
        form, tag, chunk = s.choice(FORMS), s.choice(("t", "t", "app.é", "x" * 40, "")), s.choice((*CHUNKS, None))
        count = 1 if form == "message" else s.choice((0, 1, 2, 5, 20))
        entries = [_entry(s, sound=form == "message") for _ in range(count)]
        names, is_hash = True, s.perhaps(0.2)  # whether its chunk names a sending, or what it sends
        if is_hash:
            chunk = s.choice((*HASHES, _go(s, s.choice((YEAR + 1, -YEAR - 1)))))
        elif s.perhaps(0.3):
            names, chunk = s.choice(((False, s.choice(NO_CHUNKS)), (True, _go(s, s.choice((0, YEAR, -YEAR))))))
        option = {"size": count} | ({} if chunk is None else {"chunk": chunk})
        option |= s.choice(({}, {"compressed": "gzip"}, {"x": b"y"}))
        body = b"".join(each.raw for each in entries)
        sent = _elements(s, form, entries, found.inside(body))
        found.sent.append([bytes((0x94 if form == "message" else 0x93,)) + packed(tag) + sent + packed(option)])
        found.replies += [] if chunk is None else [packed({"ack": chunk})]
        content = chunk if isinstance(chunk, bytes) else str(chunk).encode()
        about = {} if chunk is None else {"chunk": {"$bin": base64(chunk)} if isinstance(chunk, bytes) else str(chunk)}
        ids = named(b"forward", tag.encode(), content, body)[:26] if names and chunk is not None else ""
        for index, (raw, record, notes, time, whole, reason) in enumerate(entries):
            own = f"{ids}{index:08x}" if ids and not (is_hash and whole and not reason) else RANDOM
            noted = about | ({"tag": tag, "index": index} if reason else notes)
            stored = (raw, "") if reason else (record, time)
            found.parts.append(Part(stored[0], own, tag or "-", source("forward"), stored[1], noted, reason))
    return found


def _elements(s: Chance, form: str, entries: Sequence[Entry], payload: bytes) -> bytes:
    """What a message has between its tag and its option. `payload`: its entries, where they are packed."""
    if form == "message":
        return entries[0].raw[1:]
    if form == "forward":
        return array(each.raw for each in entries)
    half = s.randrange(99)
    if form == "gzip":
        payload = gzip.compress(payload[:half], mtime=0) + gzip.compress(payload[half:], mtime=0)
    elif form == "zstd":
        payload = zstd.compress(payload)
    return packed(payload.decode("utf-8", "surrogateescape") if half % 2 else payload)


def _go(s: Chance, apart: int) -> str:
    """A chunk as fluent-logger-golang makes it: of a time so far from now."""
    return base64(struct.pack("<Q", NOW + apart) + s.randbytes(8))
