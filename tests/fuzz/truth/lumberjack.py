"""Lumberjack."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any, Final

import orjson

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RANDOM, RECEIVED, Like, Part, Told, base64, framed, source, text_of
from tests.fuzz.truth.values import NO_UTF8, Document, document, moment, spelled, value, word

NO_TIME: Final = {"time": "received"}
LONG: Final = 16 << 10
"""Bytes of JSON above which keys are not sorted."""

NAMING: Final[dict[str, tuple[Any, ...]]] = {
    "@metadata": ({"beat": "f"}, {"beat": "g"}, {"beat": "f", "index": "i"}, {"beat": "f", "index": "i", "raw_index": "é"},
        {"_id": "1"}, {"_id": "2"}, {"_id": ""}, 5),
    "agent": (*({"id": name, "ephemeral_id": run, "hostname": "w é"} for name in ("a", "b", "é" * 2000) for run in "ef"),
        {"id": "a", "hostname": ""}, {"ephemeral_id": "e"}, "a"),
    "log": (*({"file": {"path": path, "inode": "1"}, "offset": offset} for path in ("x", "y", "z" * 17_000) for offset in (0, 7)),
        {"offset": 1}, {"file": {"path": "x"}}, {"file": None, "offset": 0}, "log"),
    "message": ("line", "fine", "", "é" * 1023, "é" * 1024, '"\\', "x" * 17_000, "y" * 17_000, None, 5),
    "tags": (["a"], ["a", "b"], ["b", "a"], None, ["x" * 17_000]),
    "fields": ({"z": 1, "a": [1.5, {"y": 0, "b": None}]}, {"z": 1, "a": [1.5, {"y": 0, "b": True}]}, {"z": "x" * 17_000}),
    "data_stream": (None, {"dataset": "d"}),
    "event": (None, {"dataset": "d"}, {"dataset": "e"}),
}  # fmt: skip
"""What tells events apart: those that differ in one of these have different ids."""

HOSTS: Final = ({"name": "h 1"}, "h/2", {"name": ""}, "h" * 1024, "h" * 1025, 5)


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    kind = s.choice((b"1D", b"2J", b"2J", b"2J", b"1J"))
    version = kind[:1]
    for _ in range(s.choice((1, 2, 4))):
        events = [_pairs(s) for _ in range(s.choice((0, 1, 2, 5, 20)))] if kind == b"1D" else _beats(s)
        first, frames = s.choice((1, 1, 7, 2**32 - 2)), b""
        for number, (data, part) in enumerate(events, first):
            frames += kind + struct.pack(">I", number % 2**32) + data
            found.parts.append(part._replace(attributes={"sequence": number % 2**32}) if part.reason else part)
        if s.perhaps(0.9):
            frames = version + b"C" + framed(zlib.compress(found.inside(frames), s.randrange(10)))
        found.sent.append([version + b"W" + struct.pack(">I", len(events)) + (frames if events else b"")])
        found.replies.append((version.decode(), (first + len(events) - 1) % 2**32 if events else 0))
    return found


def _beats(s: Chance) -> list[tuple[bytes, Part]]:
    """An event; the same again, with its keys in another order; others that differ in one field. And others."""
    base, time = {name: s.choice(choices[:2]) for name, choices in NAMING.items()}, moment(s)
    base |= {"k": value(s), "host": s.choice(HOSTS), "type": s.choice((None, "t", 7))}
    base |= s.choice(
        ({}, {}, {"message": None}, {"@metadata": {"_id": "1"}}, {"agent": {"id": "a", "ephemeral_id": "e"}})
    )
    style, events = s.randrange(3), []
    for name in [*NAMING, *NAMING, "", "", "@timestamp"]:
        fields = base | ({name: s.choice(NAMING[name])} if name in NAMING else {})
        at = moment(s) if name == "@timestamp" else (s.choice((None, 5)), None) if s.perhaps(0.05) else time
        fields = {key: item for key, item in fields.items() if item is not None} | {"@timestamp": at[0]}
        found = document(s, fields, style, sound=s.perhaps(0.7))
        events.append(_beat(found, fields, at[1]))
        if not found.reason and not found.note and (read := _sortable(found.raw)):
            events.append(_beat(spelled(_shuffled(s, read), style), fields, at[1]))
    s.shuffle(events)
    return events[: s.choice((1, 5, 99))]


def _sortable(raw: bytes) -> Any:
    """What JSON says whose keys may come in any order: it is short, and as orjson writes it. None if it is no such JSON."""
    try:
        return read if len(raw) <= LONG and orjson.dumps(read := orjson.loads(raw)) == raw else None
    except ValueError:
        return None


def _shuffled(s: Chance, read: Any) -> Any:
    if isinstance(read, list):
        return [_shuffled(s, each) for each in read]
    if not isinstance(read, dict):
        return read
    members = [(key, _shuffled(s, each)) for key, each in read.items()]
    s.shuffle(members)
    return dict(members)


def _beat(found: Document, fields: dict[str, Any], time: str | None) -> tuple[bytes, Part]:
    if found.reason:
        return framed(found.raw), Part(found.raw, RANDOM, "-", source("lumberjack"), "", {}, found.reason)

    def at(*path: str, kind: type = str) -> Any:
        """What is there, if it is of this kind."""
        found: Any = fields
        for name in path:
            found = found.get(name) if type(found) is dict else None
        return found if type(found) is kind else None

    subject = at("@metadata", "raw_index") or at("@metadata", "index") or at("@metadata", "beat") or at("type")
    host = at("host", "name") or at("agent", "hostname") or at("host")
    host = host if host and len(host.encode()) <= 1024 else ADDRESS
    origin = [
        at("agent", "id"),
        at("agent", "ephemeral_id"),
        at("log", "file", kind=dict),
        at("log", "offset", kind=int),
    ]
    if name := at("@metadata", "_id"):
        origin = [name]
    own: str | Like = RANDOM
    if at("@timestamp") is not None and None not in origin:
        others = [fields.get(name) for name in ("@timestamp", "tags", "fields", "data_stream")]
        content = _sortable(found.body) or repr(found.body) if at("message") is None else [at("message")]
        what = [origin, subject, at("event", "dataset"), others, content, len(found.body)]
        own = Like(json.dumps(what, sort_keys=True), found.style)
    about = found.note | ({} if time else NO_TIME)
    return framed(found.raw), Part(found.body, own, subject or "-", source("lumberjack", host), time or RECEIVED, about)


def _pairs(s: Chance) -> tuple[bytes, Part]:
    written, time = moment(s)
    given = [(word(s).encode(), s.choice((word(s).encode(), *NO_UTF8))) for _ in range(s.choice((0, 1, 3, 9)))]
    given += [(b"@timestamp", written.encode()), (b"host", b"h/1"), (b"type", b"t"), (b"host", b"2")]
    given.append((s.choice(NO_UTF8), b"x"))
    s.shuffle(given)
    given = given[: s.choice((1, 2, 5, 99))]
    data = len(given).to_bytes(4, "big") + b"".join(framed(each) for pair in given for each in pair)
    body = b"{%b}" % b",".join(b"%b:%b" % (_quoted(key), _quoted(item)) for key, item in given)
    read = text_of(body).encode()
    notes = {} if read == body else {"notes": ["invalid_utf8"], "raw": base64(body)}
    last = {key: item.decode("utf-8", "replace") for key, item in given}
    time = time if b"@timestamp" in last else None
    about = notes | ({} if time else NO_TIME)
    origin = source("lumberjack", last.get(b"host", ADDRESS))
    return data, Part(read, RANDOM, last.get(b"type", "-"), origin, time or RECEIVED, about)


def _quoted(text: bytes) -> bytes:
    """A text of JSON, and in it what is not UTF-8 as it is."""
    return json.dumps(text.decode("utf-8", "surrogateescape"), ensure_ascii=False).encode("utf-8", "surrogateescape")
