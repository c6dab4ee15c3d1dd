"""Events that are long and odd in one way each, in every protocol, and the frame that each comes in."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import ByteSession, Frame, Message, MessageSession
from headrace_courier.wire import jdat
from headrace_lumberjack.wire import V1, json_frame, pairs_frame, window

from tests.courier import driving as courier
from tests.driving import NOW_MS, feed
from tests.forward import driving as forward
from tests.logjam import driving as logjam
from tests.lumberjack import driving as lumberjack

Make = Callable[[int], bytes]
"""Makes an event of about so many bytes."""


def _list_of(value: bytes, begins: bytes = b'"a":') -> Make:
    return lambda size: b"{" + begins + b"[" + b",".join([value] * (size // (len(value) + 1))) + b"]}"


def _text_of(value: bytes, begins: bytes = b'"a":') -> Make:
    return lambda size: b"{" + begins + b'"' + value * (size // len(value)) + b'"}'


def _members(member: Callable[[int], bytes]) -> Make:
    return lambda size: b"{" + b",".join([member(number) for number in range(size // (len(member(0)) + 1))]) + b"}"


FILED: Final = (
    b'"@timestamp":"2026-11-21T09:30:00.000Z","agent":{"id":"a","ephemeral_id":"e"},'
    b'"log":{"file":{"path":"/x"},"offset":7},'
)
"""Identifies an event without a message: its id is over all of it."""

JSON: Final[dict[str, Make]] = {
    "arrays 60 deep": _list_of(b"[" * 60 + b"]" * 60),
    "maps 60 deep": _list_of(b'{"k":' * 60 + b"1" + b"}" * 60),
    "too deep": lambda size: b'{"a":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "empty arrays": _list_of(b"[]"),
    "empty texts": _list_of(b'""'),
    "small integers": _list_of(b"1"),
    "floats": _list_of(b"1.5"),
    "floats in another form": _list_of(b"1.50e1"),
    "big integers": _list_of(b"123456789012345678901"),
    "one long integer": lambda size: b'{"a":' + b"9" * size + b"}",
    "one key": _members(lambda number: b'"k":1'),
    "two keys in turn": _members(lambda number: b'"k":1' if number % 2 else b'"l":1'),
    "keys": _members(lambda number: b'"%06d":1' % number),
    "small maps": _list_of(b'{"b":1,"a":2}'),
    "plain text": _text_of(b"abcdefgh"),
    "escapes": _text_of(b"\\n"),
    "escaped backslashes": _text_of(b"\\\\"),
    "escaped letters": _text_of(b"\\u00e9"),
    "texts of brackets": _list_of(b'"[{]}"'),
    "wide letters": _text_of("ü".encode()),
    "one wide letter": lambda size: b'{"a":"' + b"x" * size + "\U0001f600".encode() + b'"}',
    "not UTF-8": _text_of(b"a\xff"),
    "texts that are not UTF-8": _list_of(b'"\xff"'),
    "keys that are not UTF-8": _members(lambda number: b'"%06d\xff":1' % number),
    "white space": lambda size: b'{"a":[' + b"1 , " * (size // 4) + b"1]}",
}


def _listed(value: bytes) -> Make:
    return lambda size: b"\x81\xa1a\xdd" + (size // len(value)).to_bytes(4, "big") + value * (size // len(value))


def _short(number: int) -> bytes:
    """Returns three letters."""
    return b64encode(number.to_bytes(3, "big"))[1:]


def _mapped(key: Callable[[int], bytes], value: bytes = b"\xc0") -> Make:
    def make(size: int) -> bytes:
        pairs = [key(number) + value for number in range(size // (len(key(0)) + 1))]
        return b"\xdf" + len(pairs).to_bytes(4, "big") + b"".join(pairs)

    return make


MSGPACK: Final[dict[str, Make]] = {
    "arrays 60 deep": _listed(b"\x91" * 60 + b"\xc0"),
    "maps 60 deep": _listed(b"\x81\xa1k" * 60 + b"\xc0"),
    "empty maps": _listed(b"\x80"),
    "exts": _listed(b"\xd4\x05x"),
    "times": _listed(b"\xd7\0" + bytes(8)),
    "bins": _listed(b"\xc4\x01x"),
    "bins that are no text": _listed(b"\xc4\x01\xff"),
    "texts that are not UTF-8": _listed(b"\xa1\xff"),
    "float32": _listed(b"\xca\0\0\0\0"),
    "integer keys": _mapped(lambda number: struct.pack(">BI", 0xCE, number)),
    "one key": _mapped(lambda _: b"\xa1k"),
    "two keys in turn": _mapped(lambda number: b"\xa1k" if number % 2 else b"\xa1l"),
    "text keys": _mapped(lambda number: b"\xa6%06x" % number),
    "empty key": _mapped(lambda _: b"\xa0", b"\x01"),
    "short keys": _mapped(lambda number: b"\xa3" + _short(number), b"\x01"),
    "short keys twice": _mapped(lambda number: b"\xa3" + _short(number // 2), b"\x01"),
    "small maps of integer keys": _listed(b"\x82\x01\xc0\x02\xc0"),
    "plain text": lambda size: b"\x81\xa1a\xdb" + size.to_bytes(4, "big") + b"x" * size,
    "one wide letter": lambda size: (
        b"\x81\xa1a\xdb" + (size + 4).to_bytes(4, "big") + b"x" * size + b"\xf0\x9f\x98\x80"
    ),
    "one text that is not UTF-8": lambda size: b"\x81\xa1a\xdb" + size.to_bytes(4, "big") + b"\xff" * size,
}


def _pairs(pair: Callable[[int], tuple[bytes, bytes]]) -> Make:
    return lambda size: pairs_frame(1, [pair(number) for number in range(size // (8 + sum(map(len, pair(0)))))])


PAIRS: Final[dict[str, Make]] = {
    "keys": _pairs(lambda number: (b"%06d" % number, b"1234")),
    "one key": _pairs(lambda _: (b"k", b"12345678")),
    "two keys in turn": _pairs(lambda number: (b"k" if number % 2 else b"l", b"12345678")),
    "short values": _pairs(lambda number: (b"%05d" % number, b"1")),
    "keys twice": _pairs(lambda number: (b"%06d" % (number // 2), b"1")),
    "values that are not UTF-8": _pairs(lambda number: (b"%06d" % number, b"123\xff")),
    "keys that are not UTF-8": _pairs(lambda number: (b"%06d\xff" % number, b"123")),
    "plain text": lambda size: pairs_frame(1, [(b"line", b"x" * size)]),
    "one text that is not UTF-8": lambda size: pairs_frame(1, [(b"line", b"\xff" * size)]),
    "one wide letter": lambda size: pairs_frame(1, [(b"line", b"x" * size + "\U0001f600".encode())]),
}


class Case(NamedTuple):
    """A way in: `session` makes a machine, `sent` what it is sent for one event, `shapes` the events."""

    session: Callable[[], ByteSession | MessageSession]
    sent: Callable[[bytes], bytes | list[bytes]]
    shapes: dict[str, Make]


def _wide(begins: bytes) -> Make:
    return lambda size: b"{" + begins + b'"' + b"x" * size + "\U0001f600".encode() + b'"}'


def _wanted(*fields: bytes) -> dict[str, Make]:
    """Fields that are read, with a value that is none of theirs."""
    lists = {f"{name.decode()} of {what}": (name, value) for name in fields for what, value in _VALUES.items()}
    made = {what: _list_of(value, b'"%b":' % name) for what, (name, value) in lists.items()}
    escapes = {f"{name.decode()} of escapes": _text_of(b"\\n", b'"%b":' % name) for name in fields}
    return {**made, **escapes, **{f"wide {name.decode()}": _wide(b'"%b":' % name) for name in fields}}


_VALUES: Final = {"empty arrays": b"[]", "floats": b"1.0"}


def _filed(make: Make) -> Make:
    return lambda size: b"{" + FILED + make(size)[1:]


CASES: Final[dict[str, Case]] = {
    "forward": Case(
        lambda: forward.session(),
        lambda record: b"\x93\xa1t\x91\x92\x01" + record + b"\x81\xa5chunk\xa1c",
        MSGPACK,
    ),
    "forward, one by one": Case(
        lambda: forward.session(),
        lambda record: b"\x94\xa1t\x01" + record + b"\x81\xa5chunk\xa1c",
        {name: MSGPACK[name] for name in ("plain text", "short keys")},
    ),
    "forward, packed": Case(
        lambda: forward.session(),
        lambda record: (
            b"\x93\xa1t\xc6" + (len(record) + 2).to_bytes(4, "big") + b"\x92\x01" + record + b"\x81\xa5chunk\xa1c"
        ),
        {name: MSGPACK[name] for name in ("plain text", "short keys")},
    ),
    "forward JSON": Case(lambda: forward.session(), lambda record: b'["t",[[1,' + record + b']],{"chunk":"c"}]', JSON),
    "courier": Case(
        lambda: courier.session(),
        lambda event: courier.HELO + jdat(courier.NONCE, [event]),
        {**JSON, **_wanted(b"host", b"@timestamp")},
    ),
    "logjam": Case(
        lambda: logjam.driven().session,
        lambda event: logjam.asking(logjam.event(event)),
        {**JSON, **_wanted(b"request_id", b"started_at")},
    ),
    "lumberjack v1": Case(lambda: lumberjack.session(pairs=1 << 16), lambda frame: window(1, V1) + frame, PAIRS),
    "lumberjack v2": Case(
        lambda: lumberjack.session(),
        lambda event: window(1) + json_frame(1, event),
        {
            **{f"{name}, id over all": _filed(make) for name, make in JSON.items()},
            **JSON,
            **{name: _filed(make) for name, make in _wanted(b"tags", b"message", b"host").items()},
            "file of floats": lambda size: (
                b"{" + FILED[: FILED.index(b'{"path')] + _list_of(b"1.0")(size) + b',"offset":7}}'
            ),
        },
    ),
}


def frame_of(case: Case, event: bytes) -> Frame | None:
    """The frame of one event; None if its connection is closed for it."""
    driven, sent = case.session(), case.sent(event)
    if isinstance(driven, MessageSession):
        assert isinstance(sent, list)
        driven.receive(Message(sent, logjam.ROUTE, logjam.ADDRESS), NOW_MS)
    else:
        assert isinstance(sent, bytes)
        try:
            feed(driven, sent)
        except ProtocolError:
            return None
    return next(iter(driven.frames()), None)
