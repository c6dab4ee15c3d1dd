# ruff: noqa: E501
"""Each limit with its two sides: what fits, and what is one beyond it."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from headrace_common.session.inflate import zstd

from tests.fuzz.truth import (
    Pairs,
    Part,
    Told,
    courier,
    forward,
    framed,
    logjam,
    lumberjack,
    named,
    refused,
    source,
)
from tests.fuzz.truth.packing import packed
from tests.fuzz.truth.segment import W1, Speech

MIB: Final = 1 << 20
BOMB: Final = MIB + 100_000
END: Final = random.Random(1).randbytes(20_000).hex()


class Limit(NamedTuple):
    """`tell`: tells what is so much beyond it (0: what fits), given why an event is none then, or "". `closes`: as in `Told`."""

    protocol: str
    name: str
    tell: Callable[[int, str], Told]
    limits: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    closes: str = ""
    reason: str = ""

    def told(self, over: int) -> Told:
        found = replace(
            self.tell(over, self.reason * over), limits=self.limits(over) if callable(self.limits) else self.limits
        )
        return replace(found, parts=[], replies=[], closes=self.closes) if over and not self.reason else found


def z(data: bytes) -> bytes:
    return zlib.compress(data, 9)


def _ratio(
    content: Callable[[int], bytes], compress: Callable[[bytes], bytes] = z
) -> Callable[[int], Mapping[str, Any]]:
    """The ratio of this content when it is as long as a `BOMB`; a little less where it must be beyond."""

    def limits(over: int) -> Mapping[str, Any]:
        size, packed_size = len(content(BOMB)), len(compress(content(BOMB)))
        assert packed_size * (size / packed_size) == size, "take another BOMB: floats miss it"
        return {"ratio": (size - over) / packed_size}

    return limits


def _text(size: int) -> str:
    """A text of so many bytes; the end of a long one compresses worse than all of it."""
    behind = END if size > len(END) else ""
    return "x" * (size - len(behind)) + behind


def _json(size: int) -> bytes:
    return b'{"m":"%b"}' % _text(size - 8).encode()


def _e(size: int) -> bytes:
    return packed([1, _map(size)])


def _gz(data: bytes) -> bytes:
    return forward.ways(0)[1](data)


def _j(size: int) -> bytes:
    return b"2J\0\0\0\1" + _framed(size)


def _framed(size: int) -> bytes:
    return framed(_json(size))


def _nested(levels: int) -> bytes:
    return b'{"n":[[]],"m":' + b'{"m":' * (levels - 1) + b"1" + b"}" * levels  # with more brackets than levels


def _courier(raws: Callable[[int], Sequence[bytes]], kind: str = "JDAT", level: int = 9) -> Callable[[int, str], Told]:
    def tell(over: int, reason: str) -> Told:
        *events, last = [courier.Event(refused(raw, "")) for raw in raws(over)]
        courier.payload(
            found := Told(), [*events, courier.Event(refused(last.document.raw, reason))], kind=kind, level=level
        )
        return found

    return tell


def _beats(raws: Callable[[int], Sequence[bytes]], level: int | None = None) -> Callable[[int, str], Told]:
    def tell(over: int, reason: str) -> Told:
        lumberjack.window(
            found := Told(), b"2J", [lumberjack.beat(refused(raw, reason)) for raw in raws(over)], level=level
        )
        return found

    return tell


def _pairs(given: Callable[[int], Sequence[tuple[bytes, bytes]]]) -> Callable[[int, str], Told]:
    def tell(over: int, reason: str) -> Told:
        lumberjack.window(found := Told(), b"1D", [lumberjack.pairs(given(over), reason=reason)])
        return found

    return tell


def _entries(
    record: Callable[[int], Any], mode: int = 2, half: int = 0, **made: Callable[[int], Any]
) -> Callable[[int, str], Told]:
    """A message of one record, or of a tuple of them, the last of which is refused. `made`: its tag, chunk or another option."""

    def tell(over: int, reason: str) -> Told:
        records = record(over)
        records = records if isinstance(records, tuple) else (records,)
        entries = [forward.Entry(packed([1, each]), repr(each), {}, "1970-01-01T00:00:01Z") for each in records]
        entries[-1] = entries[-1]._replace(reason=reason)
        forward.message(found := Told(), entries, mode, half=half, **{key: make(over) for key, make in made.items()})
        return found

    return tell


def _whole(tell: Callable[[int, str], Told]) -> Callable[[int, str], Told]:
    """The message is refused as a whole."""

    def whole(over: int, reason: str) -> Told:
        found = tell(over, "")
        raw, first = found.sent[0][0], found.parts[0]
        own = named(b"forward", b"", str(first.attributes["chunk"]).encode(), raw)
        subject = first.subject if len(first.subject) <= 64 else "-"
        return replace(found, parts=[Part(raw, own, subject, source("forward"), "", {}, reason)]) if reason else found

    return whole


def _body(raw: Callable[[int], bytes], way: int = 0) -> Callable[[int, str], Told]:
    def tell(over: int, reason: str) -> Told:
        logjam.message(found := Told(), refused(raw(over), reason), {}, None, way=logjam.WAYS[way])
        return found

    return tell


def _block(
    events: Callable[[int], Sequence[bytes]], *, today: bool, name: str = "a", most: int = 1 << 16
) -> Callable[[int, str], Told]:
    def tell(over: int, reason: str) -> Told:
        speech = Speech(today=today, segments=(name, "b"))
        speech.append(W1, events(over), most=most)
        return speech.told

    return tell


def _filling(today: bool, over: int) -> Sequence[bytes]:
    return [b"x" * (4096 - 8 - 16 * today + over)]


def _long_name(today: bool, over: int, reason: str) -> Told:
    return _block(lambda over: [b"x"], today=today, name="n" * (1024 + over))(over, reason)


def _map(size: int) -> Pairs:
    """A record whose JSON has so many bytes."""
    return Pairs([("m", _text(size - 8))])


def _deep(levels: int) -> Any:
    return Pairs([("m", _deep(levels - 1))]) if levels else 1


FRAME, INFLATED = {"frame_bytes": 4096}, {"inflated_bytes": 4096}
EVENT, DEEP, EVENTS = {"event_bytes": 1024}, {"depth": 5}, {"frame_events": 3}

KINDS, DIALECTS, WAYS = ("JDAT", "EVNT"), (False, True), ((3, _gz, "gzip"), (4, zstd.compress, "zstd"))

# fmt: off
LIMITS: Final = [
    *(Limit("courier", f"a message, {kind}", _courier(lambda over: [_json(4065 + over)], kind, 0), FRAME, "LIMITS__FRAME_BYTES") for kind in KINDS),
    *(Limit("courier", f"inflated, {kind}", _courier(lambda over: [_json(4092 + over)], kind), INFLATED, "LIMITS__INFLATED_BYTES") for kind in KINDS),
    *(Limit("courier", f"ratio, {kind}", _courier(lambda over: [_json(BOMB)], kind), _ratio(_framed), "LIMITS__RATIO") for kind in KINDS),
    *(Limit("courier", f"1 MiB, {kind}", _courier(lambda over: [_json(MIB - 4 + over)], kind), {"ratio": 9}, "LIMITS__RATIO") for kind in KINDS),
    Limit("courier", "an entry", _courier(lambda over: [_json(4096 + over)]), FRAME, "LIMITS__FRAME_BYTES"),
    Limit("courier", "an event", _courier(lambda over: [b"{}", _json(1024 + over)]), EVENT, reason="oversized"),
    Limit("courier", "levels", _courier(lambda over: [_nested(5 + over)]), DEEP, reason="too_deep"),
    Limit("courier", "levels by far", _courier(lambda over: [_nested(5 + 100_000 * over)]), DEEP, reason="too_deep"),
    Limit("courier", "events", _courier(lambda over: [b"{}"] * (3 + over)), EVENTS, "LIMITS__FRAME_EVENTS"),
    Limit("lumberjack", "a J", _beats(lambda over: [_json(4086 + over)]), FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "a C", _beats(lambda over: [_json(4069 + over)], 0), FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "inflated", _beats(lambda over: [_json(4086 + over)], 9), INFLATED, "LIMITS__INFLATED_BYTES"),
    Limit("lumberjack", "ratio", _beats(lambda over: [_json(BOMB)], 9), _ratio(_j), "LIMITS__RATIO"),
    Limit("lumberjack", "1 MiB", _beats(lambda over: [_json(MIB - 10 + over)], 9), {"ratio": 9}, "LIMITS__RATIO"),
    Limit("lumberjack", "an event", _beats(lambda over: [_json(1024 + over)]), EVENT, reason="oversized"),
    Limit("lumberjack", "levels", _beats(lambda over: [_nested(5 + over)]), DEEP, reason="too_deep"),
    Limit("lumberjack", "levels by far", _beats(lambda over: [_nested(5 + 100_000 * over)]), DEEP, reason="too_deep"),
    Limit("lumberjack", "a window", _beats(lambda over: [b"{}"] * (8 + over)), {"window_events": 8}, "LUMBERJACK__WINDOW_EVENTS"),
    Limit("lumberjack", "pairs", _pairs(lambda over: [(b"a", b"b")] * (4 + over)), {"pairs": 4}, "LUMBERJACK__PAIRS"),
    Limit("lumberjack", "a D", _pairs(lambda over: [(b"k", b"v" * (4077 + over))]), FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "pairs as JSON", _pairs(lambda over: [(b"m", b"v" * (1016 + over))]), EVENT, reason="oversized"),
    Limit("forward", "a message", _entries(lambda over: _map(4075 + over)), FRAME, "LIMITS__FRAME_BYTES"),
    Limit("forward", "an event", _entries(lambda over: (Pairs(), _map(1024 - 13 + over))), EVENT, reason="oversized"),
    Limit("forward", "levels", _entries(lambda over: _deep(5 + over)), DEEP, reason="too_deep"),
    *(Limit("forward", f"inflated, {ratio}", _whole(_entries(lambda over: _map(4096 + over), mode)), INFLATED, reason="inflated_limit") for mode, way, ratio in WAYS),
    *(Limit("forward", f"ratio, {ratio}", _whole(_entries(lambda over: _map(BOMB), mode)), _ratio(_e, way), reason="inflated_limit") for mode, way, ratio in WAYS),
    *(Limit("forward", f"1 MiB, {ratio}", _whole(_entries(lambda over: _map(MIB - 2 + over), mode)), {"ratio": 9}, reason="inflated_limit") for mode, way, ratio in WAYS),
    Limit("forward", "the tag", _whole(_entries(lambda over: Pairs(), tag=lambda over: "t" * (64 + over))), {"tag_bytes": 64}, reason="bad_message"),
    Limit("forward", "the option", _whole(_entries(lambda over: Pairs(), more=lambda over: "x" * (1001 + over))), {"option_bytes": 1024}, reason="bad_message"),
    Limit("forward", "the chunk", _entries(lambda over: Pairs(), chunk=lambda over: "c" * (64 + over)), {"chunk_bytes": 64}, "FORWARD__CHUNK_BYTES"),
    Limit("forward", "entries", _entries(lambda over: (Pairs(),) * (3 + over)), EVENTS, reason="too_many_events"),
    *(Limit("logjam", f"an event, way {way}", _body(lambda over: _json(1024 + over), way), EVENT, reason="oversized") for way in range(5)),
    *(Limit("logjam", f"inflated, way {way}", _body(lambda over: _json(4096 + over), way), INFLATED, reason="oversized") for way in range(5)),
    Limit("logjam", "ratio", _body(lambda over: _json(BOMB), 1), _ratio(_json, zlib.compress), reason="oversized"),
    Limit("logjam", "1 MiB", _body(lambda over: _json(MIB + over), 1), {"ratio": 9}, reason="oversized"),
    Limit("logjam", "levels", _body(lambda over: _nested(5 + over)), DEEP, reason="too_deep"),
    *(Limit("segment", f"an event, {today}", _block(lambda over: [b"", b"x" * (11 + over)], today=today, most=11), {"event_bytes": 11}, reason="oversized") for today in DIALECTS),
    *(Limit("segment", f"a block, {today}", _block(partial(_filling, today), today=today), FRAME, "LIMITS__FRAME_BYTES") for today in DIALECTS),
    *(Limit("segment", f"a name, {today}", partial(_long_name, today), {}, "") for today in DIALECTS),
]
