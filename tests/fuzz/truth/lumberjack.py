"""Lumberjack."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RANDOM, Like, Part, Told, base64, framed, source, text_of
from tests.fuzz.truth.values import NO_UTF8, Document, document, moment, spelled, value, word

NOW: Final = "2026-11-21T09:37:17.123Z"
NO_TIME: Final = {"time": "received"}
FIELDS: Final[dict[str, tuple[Any, ...]]] = {
    "@metadata": (
        {"beat": "f"}, {"beat": "g"}, {"beat": "f", "index": "i"}, {"beat": "f", "index": "i", "raw_index": "é"}, {"_id": "1"},
        {"_id": "2"}, {"_id": ""}, 5,
    ),
    "agent": (
        *({"id": name, "ephemeral_id": run, "hostname": "w é"} for name in ("a", "b", "é" * 2000) for run in "ef"),
        {"id": "a", "hostname": ""}, {"ephemeral_id": "e"}, "a",
    ),
    "log": (
        *({"file": {"path": path, "inode": "1"}, "offset": offset} for path in ("x", "y", "z" * 17_000) for offset in (0, 7)),
        {"offset": 1}, {"file": {"path": "x"}}, {"file": None, "offset": 0}, "log",
    ),
    "message": ("line", "fine", "", "é" * 1023, "é" * 1024, '"\\', "x" * 17_000, "y" * 17_000, 5),
    "tags": (["a"], ["a", "b"], ["b", "a"], None, ["x" * 17_000]),
    "fields": ({"z": 1, "a": [1.5, {"y": 0, "b": None}]}, {"z": 1, "a": [1.5, {"y": 0, "b": True}]},
        *({"é": "x" * 17_000, a: {"b": 1}, c: {"d": 2}} for a, c in ("ac", "ca")),
   ),
    "data_stream": (None, {"dataset": "d"}),
    "event": (None, {"dataset": "d"}, {"dataset": "e"}),
    "host": ({"name": "h 1"}, "h/2", {"name": ""}, "h" * 1024, "h" * 1025, 5),
    "type": (None, "t", 7),
}  # fmt: skip


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    kind = s.choice((b"1D", b"2J", b"2J", b"2J", b"1J"))
    for _ in range(s.choice((1, 2, 4))):
        events = [_pairs(s) for _ in range(s.choice((0, 1, 2, 5, 20)))] if kind == b"1D" else _beats(s)
        window(found, kind, events, s.choice((1, 1, 7, 2**32 - 2)), s.choice((None, *range(10))))
    return found


def window(
    found: Told, kind: bytes, events: Sequence[tuple[bytes, Part]], first: int = 1, level: int | None = None
) -> None:
    """`events`: each without its header. `level`: of a C frame; None: there is none."""
    version = kind[:1]
    frames = b""
    for number, (data, part) in enumerate(events, first):
        frames += (head := kind + struct.pack(">I", number % 2**32)) + data
        whole = head + data if kind == b"1D" else part.body
        refused = part._replace(body=whole, attributes={"sequence": number % 2**32})
        found.parts.append(refused if part.reason else part)
    if level is not None:
        frames = version + b"C" + framed(zlib.compress(found.inside(frames), level))
    found.sent.append([version + b"W" + struct.pack(">I", len(events)) + (frames if events else b"")])
    found.replies.append((version.decode(), (first + len(events) - 1) % 2**32 if events else 0))


def _beats(s: Chance) -> list[tuple[bytes, Part]]:
    """An event; the same again, spelled in another order; others that differ in one field. And others."""
    base, time = {name: s.choice(choices[:2]) for name, choices in FIELDS.items()} | {"k": value(s)}, moment(s)
    given = s.choice(
        ({}, {}, {"message": None}, {"@metadata": {"_id": "1"}}, {"agent": {"id": "a", "ephemeral_id": "e"}})
    )
    style, events = s.randrange(3), []
    for name in [*FIELDS, *FIELDS, "", "", "@timestamp"]:
        fields = base | given | ({name: s.choice(FIELDS[name])} if name in FIELDS else {})
        at = moment(s) if name == "@timestamp" else (s.choice((None, 5)), None) if s.perhaps(0.05) else time
        fields = {key: item for key, item in fields.items() if item is not None} | {"@timestamp": at[0]}
        found = document(s, fields, style, sound=s.perhaps(0.7))
        events.append(_beat(found, fields, at[1]))
        if not found.reason and not found.note:
            members = [*json.loads(found.raw).items()]
            s.shuffle(members)
            events.append(_beat(spelled(dict(members), style), fields, at[1]))
    s.shuffle(events)
    return events[: s.choice((1, 5, 99))]


def beat(found: Document) -> tuple[bytes, Part]:
    """An event without any field that is read."""
    return _beat(found, {}, None)


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
    own: str | Like = RANDOM
    file = at("log", "file", kind=dict)
    origin = [at("agent", "id"), at("agent", "ephemeral_id"), file, at("log", "offset", kind=int)]
    if at("@metadata", "_id"):
        origin = [at("@metadata", "_id")]
    if at("@timestamp") is not None and None not in origin:
        content = _written(found.body) if at("message") is None else [at("message")]
        documents = (file, *(fields.get(name) for name in ("tags", "fields", "data_stream")))
        written, *others = (_written(spelled(each, found.style).raw) for each in documents)
        origin[2:3] = [written] if len(origin) > 1 else []
        what = [origin, subject, at("event", "dataset"), others, at("@timestamp"), content, len(found.body)]
        own = Like(json.dumps(what, sort_keys=True), found.style)
    about = found.note | ({} if time else NO_TIME)
    return framed(found.raw), Part(found.body, own, subject or "-", source("lumberjack", host), time or NOW, about)


def _written(raw: bytes) -> str:
    """JSON by its content, if it is short and as orjson writes it; otherwise as written."""
    try:
        if len(raw) <= 16 << 10 and orjson.dumps(value := orjson.loads(raw)) == raw:
            return json.dumps(value, sort_keys=True)
    except ValueError:
        pass
    return raw.decode("utf-8", "surrogateescape")


def _pairs(s: Chance) -> tuple[bytes, Part]:
    given = [(word(s).encode(), s.choice((word(s).encode(), *NO_UTF8))) for _ in range(s.choice((0, 1, 3, 9)))]
    written, time = moment(s)
    given += [
        (b"@timestamp", written.encode()),
        (b"host", b"h/1"),
        (b"type", b"t"),
        (s.choice(NO_UTF8), b"x"),
        (b"host", b"2"),
    ]
    s.shuffle(given)
    return pairs(given[: s.choice((1, 2, 5, 99))], time)


def pairs(given: Sequence[tuple[bytes, bytes]], time: str | None = None, reason: str = "") -> tuple[bytes, Part]:
    data = len(given).to_bytes(4, "big") + b"".join(framed(each) for pair in given for each in pair)
    if reason:
        return data, Part(data, RANDOM, "-", source("lumberjack"), "", {}, reason)
    body = b"{%b}" % b",".join(b"%b:%b" % (_quoted(key), _quoted(item)) for key, item in given)
    read = text_of(body).encode()
    notes = {} if read == body else {"notes": ["invalid_utf8"], "raw": base64(body)}
    first = {key: item.decode("utf-8", "replace") for key, item in given}
    time = time if b"@timestamp" in first else None
    about = notes | ({} if time else NO_TIME)
    origin = source("lumberjack", first.get(b"host", ADDRESS))
    return data, Part(read, RANDOM, first.get(b"type", "-"), origin, time or NOW, about)


def _quoted(text: bytes) -> bytes:
    """A text of JSON, and in it what is not UTF-8 as it is."""
    return json.dumps(text.decode("utf-8", "surrogateescape"), ensure_ascii=False).encode("utf-8", "surrogateescape")
