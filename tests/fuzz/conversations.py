"""What a client of each protocol may send, message by message; each message is one part, Logjam's its frames."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_courier.wire import HEADER, IDENTITY, PING, entry
from headrace_logjam.wire import Meta, encode_meta
from headrace_lumberjack.wire import V1, V2, compressed, json_frame, pairs_frame, window
from headrace_segment.wire.codes import Kind

from tests.fuzz.shape import Shape
from tests.fuzz.values import (
    NUMBERS,
    TEXTS,
    deflated,
    event_time,
    json_object,
    json_text,
    json_value,
    logjam_body,
    packed,
    packed_map,
    packed_text,
    with_length,
    zipped,
    zstandard,
)
from tests.segment import speaking, speaking_today
from tests.segment.recorded import W1, W2

Sent = list[list[bytes]]
"""Messages of parts. To protocols of bytes they are one stream."""


def alone(messages: Sequence[bytes]) -> Sent:
    return [[message] for message in messages]


# Forward


def _time(s: Shape) -> bytes:
    kind = s.randrange(8)
    if kind < 4:
        return event_time(s)
    if kind == 4:
        return b"\x92" + event_time(s) + packed_map(s, 2)
    return (b"\xce\x65\x53\xf1\x00", b"\xc0", packed(s, 2))[kind - 5]


def _entry(s: Shape) -> bytes:
    if s.perhaps(0.05):
        return packed(s)
    return b"\x92" + _time(s) + packed_map(s)


def _option(s: Shape) -> bytes:
    known = [b"\xa5chunk" + (packed(s, 3) if s.perhaps(0.1) else packed_text(s, b"c", b"\xff"))] * s.perhaps(0.8)
    known += [b"\xaacompressed" + packed_text(s, b"gzip", b"text")] * s.perhaps(0.2)
    known += [b"\xadfluent_signal" + s.choice((b"\x00", b"\x01", b"\x09", b"\xc0"))] * s.perhaps(0.1)
    known += [b"\xa8metadata" + packed_map(s, 2)] * s.perhaps(0.1)
    known += [b"\xa4size" + s.choice((b"\x02", b"\xcc\x80", b"\xc0"))] * s.perhaps(0.3)
    others = s.many(lambda index: b"\xcd" + index.to_bytes(4, "big")[2:] + packed(s, 3)) if s.perhaps(0.3) else []
    pairs = [*known, *others]
    return b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(pairs)


def _message(s: Shape) -> bytes:
    if s.perhaps(0.05):
        return s.text(b"\xc0", b"\x90", b"\x93\xa1t\x90\x80")
    tag = packed(s, 2) if s.perhaps(0.05) else packed_text(s, b"t", b"app.", b"\xff")
    option = _option(s)
    kind = s.randrange(6)
    if kind == 0:
        return b"\x94" + tag + _time(s) + packed_map(s) + option
    entries = s.many(lambda index: _entry(s))
    if kind < 3:
        return b"\x93" + tag + b"\xdd" + len(entries).to_bytes(4, "big") + b"".join(entries) + option
    body = b"".join(entries)
    payload = (body, zipped, zstandard)[kind - 3]
    content = payload if isinstance(payload, bytes) else payload(s, body)
    return b"\x93" + tag + with_length(s, s.choice(("bin", "str")), content) + option


def _json_message(s: Shape) -> bytes:
    if s.perhaps(0.05):
        return s.text(b" ", b"null", b"[]", b'["t",[],{}]')
    tag = json_value(s, 3) if s.perhaps(0.1) else json_text(s)
    option = json_object(s, (b"chunk",), 2) if s.perhaps(0.5) else b'{"chunk":"c"}'

    def time() -> bytes:
        return s.choice((b"1700000000", b"1700000000.5", json_value(s, 3), b"[1.5," + json_object(s, (), 2) + b"]"))

    if s.perhaps(0.3):
        return b"[" + b",".join((tag, time(), json_object(s), option)) + b"]"
    entries = s.many(lambda index: b"[" + time() + b"," + json_object(s) + b"]")
    return b"[" + b",".join((tag, b"[" + b",".join(entries) + b"]", option)) + b"]"


def forward(s: Shape) -> Sent:
    if s.perhaps(0.3):
        return alone(s.many(lambda index: _json_message(s), few=(1, 1, 2, 3)))
    return alone(s.many(lambda index: _message(s), few=(1, 1, 2, 3)))


# Lumberjack

_BEAT = (b"@timestamp", b"@metadata", b"agent", b"log", b"host", b"message", b"type", b"tags", b"fields", b"event")


def _data(s: Shape, version: int, number: int) -> bytes:
    if version == V2:
        return json_frame(number & 0xFFFFFFFF, json_value(s) if s.perhaps(0.1) else json_object(s, _BEAT))
    same = s.perhaps(0.3)
    values = s.many(lambda index: s.text(*TEXTS))
    names = (b"host", b"type", b"@timestamp", b"\xff")
    keys = [b"k" if same else s.choice(names) if s.perhaps(0.2) else b"k%d" % index for index in range(len(values))]
    return pairs_frame(number & 0xFFFFFFFF, list(zip(keys, values, strict=True)))


def _window(s: Shape) -> bytes:
    version = s.choice((V1, V2, V2))
    first = s.choice((0, 1, 1, 1, 5, 2**32 - 2))
    frames = s.many(lambda index: _data(s, version, first + index), pool=s.perhaps(0.5))
    count = len(frames) if s.perhaps(0.9) else s.choice((0, 1, 3, *NUMBERS))
    opening = b"".join(s.many(lambda index: window(0, version))) if s.perhaps(0.1) else b""
    opening += window(count, version)
    if s.perhaps(0.5):
        content = b"".join(frames)
        if s.perhaps(0.1):
            opening, content = b"", opening + content
        if s.perhaps(0.05):
            content = compressed(content, version=version)
        packed_content = deflated(s, content)
        return opening + bytes((version,)) + b"C" + len(packed_content).to_bytes(4, "big") + packed_content
    return opening + b"".join(frames)


def lumberjack(s: Shape) -> Sent:
    return alone(s.many(lambda index: _window(s), few=(1, 1, 2, 3)))


# Courier


def _courier_message(s: Shape) -> bytes:
    kind = s.randrange(12)
    if kind == 0:
        return s.text(PING, HEADER.pack(b"NEWS", 0), HEADER.pack(b"????", 0))
    if kind == 1:
        body = s.text(b"x")
        return HEADER.pack(s.choice((b"NEWS", b"HELO", b"PONG", b"PING")), len(body)) + body
    names = (b"@timestamp", b"type", b"path", b"host")
    events = s.many(lambda index: b"" if s.perhaps(0.05) else json_object(s, names))
    content = b"".join(map(entry, events))
    if s.perhaps(0.05):
        content += s.choice(NUMBERS).to_bytes(4, "big") + b"x"
    body = s.choice((bytes(16), bytes(range(16)))) + deflated(s, content)
    if kind < 8:
        return HEADER.pack(b"JDAT", len(body) if s.perhaps(0.95) else s.choice(NUMBERS)) + body
    return HEADER.pack(b"EVNT", 0xFFFFFFFF) + body


def courier(s: Shape) -> Sent:
    hello = [HEADER.pack(b"HELO", 32) + IDENTITY.pack(b"\x01\0\0\0", 2, 9, 0, b"LCOR")] * s.perhaps(0.8)
    return alone([*hello, *s.many(lambda index: _courier_message(s), few=(1, 1, 2, 3))])


# Logjam


def _logjam_message(s: Shape) -> list[bytes]:
    method = s.choice((0, 1, 2, 3))
    names = (b"started_ms", b"started_at", b"request_id", b"uuid")
    body = json_value(s) if s.perhaps(0.1) else json_object(s, names)
    meta = Meta(method if s.perhaps(0.9) else s.randrange(6), s.choice((0, 7)), s.choice((0, 1_700_000_000_000)), 1)
    app_env = s.text(b"a-b", b"\xff", b"shop-production") if s.perhaps(0.2) else b"shop-production"
    topic = s.text(b"logs.", b"x") if s.perhaps(0.2) else b"logs.shop.production"
    parts = [app_env, topic, logjam_body(s, method, body), encode_meta(meta)]
    if s.perhaps(0.05):
        parts = [b"ping", *s.many(lambda index: b"x")]
    return [b"", *parts] if s.perhaps(0.7) else parts


def logjam(s: Shape) -> Sent:
    return s.many(lambda index: _logjam_message(s), few=(1, 2, 3, 6))


# Segments


def _blocks(s: Shape) -> bytes:
    return speaking.events(*s.many(lambda index: s.text(*TEXTS)))


def _original(s: Shape) -> list[bytes]:
    levels = {W1: 0, W2: 0}

    def one(index: int) -> bytes:
        kind = s.randrange(12)
        writer, segment = s.choice((W1, W1, W2)), s.choice(("a", "a", "b"))
        if kind == 0:
            return speaking.setup(segment, writer)
        if kind == 1:
            return speaking.read(segment, s.choice((0, 0, 5, *NUMBERS)), s.choice((0, 1, 1000, 2**31 - 1)))
        if kind == 2:
            return speaking.keep_alive(s.text(b"x"))
        if kind == 3:
            return speaking.in_parts(speaking.setup(segment, writer), s.many(lambda index: 1))
        offset, content = levels[writer], _blocks(s)
        levels[writer] += len(content) if s.perhaps(0.95) else 1
        if kind == 4:
            return speaking.block_inside(offset, content, writer)
        if kind == 5:
            last = speaking.event(s.text(b"x"))
            levels[writer] += len(last)
            return speaking.over_the_end(offset, content, last, s.randrange(len(last) + 1), writer)
        if kind == 6:
            padding = b"".join(s.many(lambda index: speaking.raw(Kind.PADDING, bytes(index % 3))))
            return speaking.block(offset, content + padding, writer, length=len(content))
        return speaking.block(offset, content, writer, capacity=s.choice((0, 0, 9, 2**31 - 1)))

    return [speaking.setup("a", W1), speaking.setup("b", W2), *s.many(one, pool=False, few=(1, 3, 6))]


def _today(s: Shape) -> list[bytes]:
    numbers = {W1: 0, W2: 0}

    def one(index: int) -> bytes:
        kind = s.randrange(13)
        writer, segment = s.choice((W1, W1, W2)), s.choice(("a", "a", "b"))
        if kind < 6:
            data = s.many(lambda index: s.text(*TEXTS), few=(1, 1, 2, 5)) or [b""]
            numbers[writer] += s.choice((len(data), len(data), len(data), 0, 2**40))
            if kind == 0:
                return speaking_today.append_bytes(numbers[writer], b"".join(data), len(data), writer)
            if kind == 1:
                return speaking_today.append_over_the_end(numbers[writer], *data, at=s.randrange(9), writer=writer)
            count = len(data) if s.perhaps(0.9) else s.choice((0, 1, 2**31 - 1))
            return speaking_today.append(numbers[writer], *data, writer=writer, count=count, pad=s.choice((0, 0, 3)))
        others = (
            speaking_today.setup(segment, writer, token="t" * s.choice((0, 1, 900))),
            speaking_today.create(segment),
            speaking_today.read(segment, s.choice((0, 5, 10_000)), s.choice((0, 1000, 2**31 - 1))),
            speaking_today.info(segment),
            speaking_today.KEEP_ALIVE,
            speaking.raw(s.choice((5, 11, 34, 58, 70, -1)), s.text(b"\0", b"x")),
            s.choice(
                (speaking_today.truncate(9, segment), speaking_today.seal(segment), speaking_today.delete(segment))
            ),
        )
        return others[kind - 6]

    opening = [speaking_today.HELLO, *map(speaking_today.create, "ab")]
    opening += [speaking_today.setup("a", W1), speaking_today.setup("b", W2)]
    return [*opening, *s.many(one, pool=False, few=(1, 3, 6))]


def segment_original(s: Shape) -> Sent:
    return alone(_original(s))


def segment_today(s: Shape) -> Sent:
    return alone(_today(s))
