"""Each limit with its two sides: what fits, and what is one beyond it. Sizes are counted here, bytes are made as clients do."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from headrace_common.session.inflate import zstd
from headrace_lumberjack.wire import V1, compressed, json_frame, pairs_frame, window

from tests.courier import driving as courier
from tests.forward.driving import pack
from tests.fuzz.chance import Sent
from tests.logjam import driving as logjam
from tests.segment import speaking, speaking_today

FAR: Final = 100_000

FRAME: Final = {"frame_bytes": 4096}
INFLATED: Final = {"inflated_bytes": 4096}
EVENT: Final = {"event_bytes": 1024}
DEEP: Final = {"depth": 5}
EVENTS: Final = {"frame_events": 3}

Compress = Callable[[bytes], bytes]


class Limit(NamedTuple):
    """`limits`: with which settings. `verdict`: the setting that ends the connection beyond it, "" where it is none, or the
    reason why the last part is refused. `make`: what is so much beyond it; 0: what fits.
    """

    name: str
    limits: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    verdict: str
    make: Callable[[int], bytes | list[bytes]]

    def given(self, over: int) -> tuple[Sent, Mapping[str, Any]]:
        """What is sent, with which settings."""
        made = self.make(over)
        return [made if isinstance(made, list) else [made]], self.limits(over) if callable(self.limits) else self.limits


def _json(size: int) -> bytes:
    """An event of so many bytes."""
    return b'{"m":"%b"}' % (b"x" * (size - 8))


def _map(size: int) -> bytes:
    """A record of msgpack whose JSON has so many bytes."""
    return pack({"m": _json(size)[6:-2].decode()})


def _nested(levels: int) -> bytes:
    return b'{"n":[[]],"m":' + b'{"m":' * (levels - 1) + b"1" + b"}" * levels  # with more brackets than levels


def _document_limits(sent: Callable[[bytes], Any]) -> list[Limit]:
    """`sent`: a message of this event."""
    return [
        Limit("an event", EVENT, "oversized", lambda over: sent(_json(1024 + over))),
        Limit("levels", DEEP, "too_deep", lambda over: sent(_nested(5 + over))),
        Limit("levels by far", DEEP, "too_deep", lambda over: sent(_nested(5 + FAR * over))),
    ]


def _inflated(sent: Callable[[bytes], Any], content: Callable[[int], bytes], verdict: str) -> Limit:
    """`sent`: a message with this in it, compressed. `content`: an event of so many bytes of JSON, before that."""

    def sized(size: int) -> Any:
        return sent(content(2 * size - len(content(size))))

    return Limit("inflated", INFLATED, verdict, lambda over: sized(4096 + over))


def _courier(kind: bytes) -> list[Limit]:
    def sent(*raws: bytes, level: int = 6) -> bytes:
        return courier.payload(courier.content(raws), kind=kind, level=level)

    return [
        *_document_limits(sent),
        _inflated(
            partial(courier.payload, kind=kind), lambda size: courier.content([_json(size)]), "LIMITS__INFLATED_BYTES"
        ),
        Limit("a message", FRAME, "LIMITS__FRAME_BYTES", lambda over: sent(_json(4065 + over), level=0)),
        Limit("an entry", FRAME, "LIMITS__FRAME_BYTES", lambda over: sent(_json(4096 + over))),
        Limit("events", EVENTS, "LIMITS__FRAME_EVENTS", lambda over: sent(*[b"{}"] * (3 + over))),
    ]


def _lumberjack() -> list[Limit]:
    def sent(*raws: bytes) -> bytes:
        return window(len(raws)) + b"".join(json_frame(number, raw) for number, raw in enumerate(raws, 1))

    def packed(frames: bytes, level: int = 6) -> bytes:
        return window(1) + compressed(frames, level)

    def pairs(*items: tuple[bytes, bytes]) -> bytes:
        return window(1, V1) + pairs_frame(1, items)

    return [
        *_document_limits(sent),
        _inflated(packed, lambda size: json_frame(1, _json(size)), "LIMITS__INFLATED_BYTES"),
        Limit("a J", FRAME, "LIMITS__FRAME_BYTES", lambda over: sent(_json(4086 + over))),
        Limit("a C", FRAME, "LIMITS__FRAME_BYTES", lambda over: packed(json_frame(1, _json(4069 + over)), 0)),
        Limit("a window", {"window_events": 8}, "LUMBERJACK__WINDOW_EVENTS", lambda over: sent(*[b"{}"] * (8 + over))),
        Limit("pairs", {"pairs": 4}, "LUMBERJACK__PAIRS", lambda over: pairs(*[(b"a", b"b")] * (4 + over))),
        Limit("a D", FRAME, "LIMITS__FRAME_BYTES", lambda over: pairs((b"k", b"v" * (4077 + over)))),
        Limit("pairs as JSON", EVENT, "oversized", lambda over: pairs((b"m", b"v" * (1016 + over)))),
    ]


def _forward() -> list[Limit]:
    def sent(*records: bytes, tag: str = "t", **option: Any) -> bytes:
        return pack([tag, b"".join(b"\x92\1" + each for each in records), {"chunk": "c", **option}])

    def packed(name: str, compress: Compress) -> Limit:
        return _inflated(
            lambda data: pack(["t", compress(data), {"chunk": "c", "compressed": name}]),
            lambda size: b"\x92\1" + _map(size),
            "inflated_limit",
        )

    empty = pack({})
    return [
        Limit("a message", FRAME, "LIMITS__FRAME_BYTES", lambda over: sent(_map(4081 + over))),
        Limit("JSON", FRAME, "LIMITS__FRAME_BYTES", lambda over: b'["t",1,{"m":"%b"}]' % (b"x" * (4080 + over))),
        Limit("an event", EVENT, "oversized", lambda over: sent(empty, _map(1024 - len('{"chunk":"c"}') + over))),
        Limit("levels", DEEP, "too_deep", lambda over: sent(b"\x81\xa1m" * (5 + over) + b"\1")),
        Limit("the tag", {"tag_bytes": 64}, "bad_message", lambda over: sent(empty, tag="t" * (64 + over))),
        Limit("the option", {"option_bytes": 1024}, "bad_message", lambda over: sent(empty, more="x" * (1007 + over))),
        Limit(
            "the chunk", {"chunk_bytes": 64}, "FORWARD__CHUNK_BYTES", lambda over: sent(empty, chunk="c" * (64 + over))
        ),
        Limit("entries", EVENTS, "too_many_events", lambda over: sent(*[empty] * (3 + over))),
        packed("gzip", lambda data: gzip.compress(b"", mtime=0) + gzip.compress(data, mtime=0)),
        packed("zstd", zstd.compress),
    ]


def _logjam(method: int) -> list[Limit]:
    def sent(body: bytes, app_env: bytes = logjam.APP_ENV, topic: bytes = logjam.TOPIC) -> list[bytes]:
        return logjam.asking(logjam.event(body, method, app_env=app_env, topic=topic))

    return [
        *_document_limits(sent),
        Limit("inflated", INFLATED, "oversized", lambda over: sent(_json(4096 + over))),
        Limit("a name", {}, "bad_message", lambda over: sent(b"{}", app_env=b"-" * (1024 + over))),
        Limit("a topic", {}, "bad_message", lambda over: sent(b"{}", topic=b"logs" + b"x" * (1020 + over))),
    ]


def _segment(beside: int, block: Callable[..., bytes]) -> list[Limit]:
    """`block`: of a segment and events. `beside`: bytes of it that are no data."""
    return [
        Limit("an event", {"event_bytes": 11}, "oversized", lambda over: block("a", b"", b"x" * (11 + over))),
        Limit("a block", FRAME, "LIMITS__FRAME_BYTES", lambda over: block("a", b"x" * (4096 - beside + over))),
        Limit("a name", {}, "", lambda over: block("n" * (1024 + over), b"x")),
    ]


def _original(name: str, *data: bytes) -> bytes:
    return speaking.setup(name) + speaking.block(0, speaking.events(*data))


def _today(name: str, *data: bytes) -> bytes:
    opened = speaking_today.HELLO + speaking_today.create(name) + speaking_today.setup(name)
    return opened + speaking_today.append(len(data), *data)


LIMITS: Final[Mapping[str, list[Limit]]] = {
    "courier": _courier(b"JDAT") + _courier(b"EVNT"),
    "lumberjack": _lumberjack(),
    "forward": _forward(),
    "logjam": [limit for method in range(4) for limit in _logjam(method)],
    "segment": _segment(8, _original) + _segment(24, _today),
}
