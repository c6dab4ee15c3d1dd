"""Forward, in msgpack and in JSON."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import sha512
from typing import Any, Final, NamedTuple

import msgpack
from headrace_common.session.inflate import zstd  # the standard library's, or its backport

from tests.fuzz.chance import Chance
from tests.fuzz.truth import NOW, RANDOM, RECEIVED, Pairs, Part, Told, at, base64, named, source
from tests.fuzz.truth.packing import Single, as_pairs, event_time, packed, plain, rendered
from tests.fuzz.truth.values import NO_UTF8, document, refused, value, word

SCALARS: Final = (math.nan, math.inf, -math.inf, 2**64 - 1, None, True, Single(0.5), Single(0.10000000149011612))
EXTS: Final = (
    msgpack.ExtType(0, b"\0\0\1\0\xff\xff\xff\xff"), msgpack.ExtType(0, b"123456789"), msgpack.ExtType(5, b"\xff"),
    msgpack.Timestamp(9, 5),
)  # fmt: skip
KEYS: Final = (
    1, b"1", "1", "k1", b"k1", None, 1.5, True, b"\xff", "\udcff", "\udc81", "\udc8d", -1, math.nan,
    msgpack.ExtType(5, b"a"),
)  # fmt: skip
SECONDS: Final = (1, NOW, -3, 253_402_300_799, -62_135_596_800)
FRACTIONS: Final = (0.5, 1.5, NOW + 0.25, 1e-6, 1.0, NOW + 1e-6)
NANOSECONDS: Final = (0, 5, 10**6, 123_456_789, 999_999_999, 10**9, 10**9 + 1)
NO_TIMES: Final = ("now", 253_402_300_800, -62_135_596_801, math.nan, 1e12, True, msgpack.ExtType(1, b"12345678"))
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


def _odd(s: Chance, level: int = 0) -> Any:
    """A value of msgpack."""
    kind = s.randrange(6 if level > 2 else 10)
    if kind < 2:
        return as_pairs(value(s, 3))
    if kind < 4:
        return s.choice((word(s).encode(), s.choice(NO_UTF8), s.choice(NO_UTF8).decode("utf-8", "surrogateescape")))
    if kind < 6:
        return s.choice((SCALARS, EXTS)[kind - 4])
    return [_odd(s, level + 1) for _ in range(s.choice((0, 1, 2, 5)))] if kind < 8 else _odd_map(s, level + 1)


def _odd_map(s: Chance, level: int = 0) -> Pairs:
    usual = s.perhaps(0.5)
    keys = [f"k{s.randrange(9)}" if usual else s.choice((word(s), *KEYS)) for _ in range(s.choice((0, 1, 2, 5, 9)))]
    return Pairs((key, _odd(s, level)) for key in keys)


def _time(s: Chance, *, sound: bool) -> tuple[Any, str, bool, dict[str, Any]]:
    """A time, as it is stored ("": it is none), whether it is a whole millisecond, and the notes on it."""
    kind = s.randrange(10)
    if kind < 5:
        time = msgpack.ExtType(0, struct.pack(">II", s.choice((NOW, 0, 2**32 - 3)), s.choice(NANOSECONDS)))
        return time, event_time(time), int.from_bytes(time.data[4:], "big") % 10**6 == 0, {}
    if kind == 5:
        return (seconds := s.choice(SECONDS)), at(seconds) + "Z", True, {}
    if kind == 6:
        nanoseconds = int(Decimal(repr(number := s.choice(FRACTIONS))) * 10**9)
        digits = f".{nanoseconds % 10**9:09d}".rstrip("0").rstrip(".")
        return number, at(nanoseconds // 10**9) + digits + "Z", nanoseconds % 10**6 == 0, {}
    if kind == 7:
        return s.choice((None, 0, 0.0)), RECEIVED, True, {"time": "received"}
    if kind == 8:
        number, group = s.choice(((-1, "start"), (-2, "end")))
        return number, RECEIVED, True, {"time": "received", "group": group}
    return s.choice(NO_TIMES[sound:]), "", True, {}  # a text in the place of a time is a payload


def _entry(s: Chance, *, sound: bool) -> Entry:
    if not sound and s.perhaps(0.1):
        return Entry(packed(s.choice(NO_ENTRIES)), "", {}, reason="bad_record")
    time, stored, whole, notes = _time(s, sound=sound)
    odd: set[str] = set()
    record = _odd_map(s) if s.perhaps(0.5) else Pairs((f"k{n}", as_pairs(value(s))) for n in range(s.choice((0, 1, 3))))
    if not sound and s.perhaps(0.2):
        metadata = _odd_map(s)
        notes |= {"metadata": plain(rendered(metadata, odd))} if metadata else {}
        time = [time, metadata]
    body, raw = repr(rendered(record, odd)), packed([time, record])
    notes |= {"notes": sorted(odd), "raw": base64(raw)} if odd else {}
    return Entry(raw, body, notes, stored, whole, "" if stored else "bad_time")


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


def ways(half: int) -> Sequence[Callable[[bytes], bytes]]:
    return (
        bytes,
        lambda data: gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0),
        zstd.compress,
    )


def message(
    found: Told, entries: Sequence[Entry], mode: int, chunk: Any = "c", tag: str = "t", half: int = 0, *, names: bool = True,
    is_hash: bool = False, **more: Any,
) -> None:  # fmt: skip
    """Tells a message. `mode`: Message, Forward, PackedForward, the same with gzip, with zstd. `names`: its chunk names a
    sending; `is_hash`: or what it sends.
    """
    option = {"size": len(entries)} | ({} if chunk is None else {"chunk": chunk}) | more
    body = b"".join(each.raw for each in entries)
    sent = bytes((0x93 + (not mode),)) + packed(tag)
    if mode < 2:
        sent += msgpack.Packer().pack_array_header(len(entries)) + body if mode else body[1:]
    else:
        payload = ways(half)[mode - 2](found.inside(body))
        sent += packed(payload.decode("utf-8", "surrogateescape") if half % 2 else payload)
    found.sent.append([sent + packed(as_pairs(option))])
    found.replies += [] if chunk is None else [packed(Pairs([("ack", chunk)]))]
    about = {} if chunk is None else {"chunk": plain(rendered("17" if chunk == 17 else chunk, set()))}
    content = chunk if isinstance(chunk, bytes) else str(chunk).encode()
    ids = named(b"forward", tag.encode(), content, body)[:26]
    _tell(found, entries, tag, ids if names and chunk is not None else "", about, is_hash=is_hash)


def _tell(
    found: Told, entries: Sequence[Entry], tag: str, ids: str, about: dict[str, Any], *, is_hash: bool
) -> None:  # fmt: skip
    """`ids`: how they begin, if they name a sending."""
    for index, (raw, body, notes, time, whole, reason) in enumerate(entries):
        own = f"{ids}{index:08x}" if ids and not (is_hash and whole and not reason) else RANDOM
        noted = about | ({"tag": tag, "index": index} if reason else notes)
        time = "" if reason else time
        found.parts.append(Part(raw if reason else body, own, tag or "-", source("forward"), time, noted, reason))


JSON_TIMES: Final[tuple[tuple[bytes, str, bool, dict[str, Any]], ...]] = (
    (b"1700000000", "2023-11-14T22:13:20Z", True, {}),
    (b"1700000000.0005", "2023-11-14T22:13:20.0005Z", False, {}),
    (b"null", RECEIVED, True, {"time": "received"}),
    (b"[1,{}]", "", True, {}),
    (b'"now"', "", True, {}),
)


def in_json(s: Chance) -> Told:
    """The same in JSON: records pass through as they came."""
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 1, 2, 3))):
        chunk, entries = s.choice((None, "c é", "0" * 32)), []
        for _ in range(s.choice((0, 1, 2, 5))):
            record = document(s, {"k": value(s)}, sound=True) if s.perhaps(0.9) else refused(b"[]", "bad_record")
            written, stored, whole, notes = s.choice(JSON_TIMES)
            reason = record.reason or ("" if stored else "bad_time")
            raw = b"[%b,%b]" % (written, record.raw)
            entries.append(Entry(raw, record.body, notes | record.note, stored, whole, reason))
        body, about = b"[" + b",".join(each.raw for each in entries) + b"]", {} if chunk is None else {"chunk": chunk}
        found.sent.append(['["é",'.encode() + body + b"," + json.dumps(about, ensure_ascii=False).encode() + b"]"])
        found.replies += [] if chunk is None else [{"ack": chunk}]
        ids = named(b"forward", "é".encode(), str(chunk).encode(), body)[:26]
        _tell(found, entries, "é", ids if chunk else "", about, is_hash=chunk == "0" * 32)
    return found
