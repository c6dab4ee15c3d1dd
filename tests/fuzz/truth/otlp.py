"""OTLP logs over HTTP."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

from tests.fuzz.chance import Chance
from tests.fuzz.truth import ADDRESS, RANDOM, RECEIVED, Part, Told, at, base64, named, source, tree

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
PACKED: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "": bytes,
    "gzip": partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
}


class Value(NamedTuple):
    """A value: as protobuf, as OTLP's JSON, and as the lake has it."""

    raw: bytes
    text: dict[str, Any]
    plain: str
    note: str = ""


class Record(NamedTuple):
    raw: bytes
    text: str
    plain: str
    time: int
    notes: frozenset[str]
    broken: bool
    fine: bool


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 127:
        length += bytes((size % 128 + 128,))
        size //= 128
    return bytes((number * 8 + 2,)) + length + bytes((size,)) + content


def text(said: str) -> Value:
    return Value(field(1, said.encode()), {"stringValue": said}, json.dumps(said))


NAN: Final = Value(b"\x21\0\0\0\0\0\0\xf8\x7f", {"doubleValue": "NaN"}, '"NaN"', "numbers")
VALUES: Final = (
    text("ü"),
    text(""),
    Value(b"", {}, "null"),
    Value(b"\x10\x01", {"boolValue": True}, "true"),
    Value(b"\x18" + b"\xff" * 9 + b"\x01", {"intValue": "-1"}, "-1"),
    Value(b"\x21\0\0\0\0\0\0\xf8\x3f", {"doubleValue": 1.5}, "1.5"),
    Value(field(7, b"\0\xff"), {"bytesValue": "AP8="}, '"AP8="'),
    Value(field(5, field(1, text("x").raw)), {"arrayValue": {"values": [text("x").text]}}, '["x"]'),
    NAN,
)


def pairs(s: Chance) -> tuple[list[tuple[str, Value]], set[str]]:
    found = [(s.choice(("k", "é", "other")), s.choice(VALUES)) for _ in range(s.choice((1, 2, 3)))]
    notes = {value.note for _, value in found if value.note}
    return found, notes | ({"repeated_keys"} if len({key for key, _ in found}) < len(found) else set())


def record(s: Chance) -> Record:
    time, observed = s.choice((0, 1, 1_700_000_000_123_456_789)), s.choice((0, 5_000_000_000))
    body, (about, notes) = s.choice(VALUES), pairs(s)
    broken = s.perhaps(0.1)
    raw = (b"\x09" + time.to_bytes(8, "little")) * bool(time) + field(5, body.raw)
    raw += b"".join(field(6, field(1, key.encode()) + field(2, value.raw)) for key, value in about)
    raw += (b"\x59" + observed.to_bytes(8, "little")) * bool(observed) + b"\x0a" * broken
    said: dict[str, Any] = {"timeUnixNano": str(time)} if time else {}
    said |= {"observedTimeUnixNano": str(observed)} if observed else {}
    times = [f'"{key}":"{value}"' for key, value in said.items()]
    inside = ",".join(f'"{key}":{value.plain}' for key, value in about)
    plain = [*times[: bool(time)], f'"body":{body.plain}', f'"attributes":{{{inside}}}', *times[bool(time) :]]
    said |= {"body": body.text, "attributes": [{"key": key, "value": value.text} for key, value in about]}
    told = json.dumps(said | ({"flags": "none"} if broken else {}))
    fine = bool(time % 10**6 or observed % 10**6)
    return Record(raw, told, ",".join(plain), time or observed, frozenset(notes | ({body.note} - {""})), broken, fine)


def wrap(host: str, records: list[bytes]) -> bytes:
    """A body in protobuf."""
    resource = field(1, field(1, field(1, b"host.name") + field(2, text(host).raw)))
    return field(1, resource + field(2, b"".join(field(2, each) for each in records)))


def wrap_json(host: str, records: list[str]) -> bytes:
    """A body in JSON."""
    about = json.dumps({"attributes": [{"key": "host.name", "value": {"stringValue": host}}]})
    inside = f'"scopeLogs":[{{"logRecords":[{",".join(records)}]}}]'
    return f'{{"resourceLogs":[{{"resource":{about},{inside}}}]}}'.encode()


def told(s: Chance) -> Told:
    found = Told(inside=s.inside)
    for _ in range(s.choice((1, 1, 2, 3))):
        encoding, host, coding = s.choice((PROTOBUF, JSON)), s.choice(("", "é")), s.choice(tuple(PACKED))
        records = [record(s) for _ in range(s.choice((1, 2, 5)))]
        raws, texts = [each.raw for each in records], [each.text for each in records]
        content = wrap(host, raws) if encoding == PROTOBUF else wrap_json(host, texts)
        packed = PACKED[coding](found.inside(content)) if coding else content
        more = f"\r\nContent-Encoding: {coding}" * bool(coding)
        lines = f"POST /v1/logs HTTP/1.1\r\nHost: a\r\nContent-Type: {encoding}{more}\r\n"
        if s.perhaps(0.5):
            found.sent.append([f"{lines}Content-Length: {len(packed)}\r\n\r\n".encode() + packed])
        else:
            size = s.choice((1, 7, 1000))
            chunks = [packed[at : at + size] for at in range(0, len(packed), size)] + [b""]
            body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks)
            found.sent.append([f"{lines}Transfer-Encoding: chunked\r\n\r\n".encode() + body])
        broken = sum(each.broken for each in records)
        if broken and encoding == JSON:  # none of them is read
            found.replies.append((400, 0))
            about: dict[str, Any] = {"encoding": JSON, "compression": coding}
            own = named(b"otlp", b"", packed)
            found.parts.append(Part(packed, own, "-", source("otlp"), "", about, "bad_record"))
            continue
        found.replies.append((200, broken))
        tail = f',"resource":{{"attributes":{{"host.name":{json.dumps(host)}}}}},"scope":{{}}'
        for index, each in enumerate(records):
            own = f"{named(b'otlp', b'', sha256(content).digest())[:26]}{index:08x}"
            origin = source("otlp", host or ADDRESS)
            if each.broken:
                about = {"encoding": PROTOBUF, "index": index}
                found.parts.append(Part(wrap(host, [each.raw]), own, "-", origin, "", about, "bad_record"))
                continue
            about = {} if each.time else {"time": "received"}
            if each.notes:
                about |= {"notes": sorted(each.notes), "raw": base64(wrap(host, [each.raw]))}
            time = f"{at(each.time // 10**9)}.{each.time % 10**9:09d}Z" if each.time else RECEIVED
            value = f"{{{each.plain}{tail}}}".encode()
            found.parts.append(Part(tree(value), own if each.fine and host else RANDOM, "-", origin, time, about))
    return found
