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

from tests.fuzz.truth import Pairs, Part, Told, courier, forward, framed, logjam, lumberjack, named, source
from tests.fuzz.truth.packing import packed
from tests.fuzz.truth.segment import W1, Speech
from tests.fuzz.truth.values import refused

MIB: Final = 1 << 20
BOMB: Final = MIB + 100_000
END: Final = random.Random(1).randbytes(20_000).hex()


class Limit(NamedTuple):
    """`make`: what is so much beyond it (0: what fits). `tell` tells it, given why it is no event, or "". `closes`: as in `Told`."""

    protocol: str
    name: str
    tell: Callable[[Any, str], Told]
    make: Callable[[int], Any]
    limits: Mapping[str, Any] | Callable[[int], Mapping[str, Any]]
    closes: str = ""
    reason: str = ""

    def told(self, over: int) -> Told:
        found = self.tell(self.make(over), self.reason * over)
        found = replace(found, limits=self.limits(over) if callable(self.limits) else self.limits)
        return replace(found, parts=[], replies=[], closes=self.closes) if over and not self.reason else found


def _ratio(content: bytes, compress: Callable[[bytes], bytes]) -> Callable[[int], Mapping[str, Any]]:
    """The ratio of this content; a little less where it must be beyond."""
    size, packed_size = len(content), len(compress(content))
    assert packed_size * (size / packed_size) == size, "take another BOMB: floats miss it"
    return lambda over: {"ratio": (size - over) / packed_size}


def _json(size: int) -> bytes:
    """An event of so many bytes; the end of a long one compresses worse than all of it."""
    behind = END if size > len(END) else ""
    return b'{"m":"%b"}' % (b"x" * (size - 8 - len(behind)) + behind.encode())


def _map(size: int) -> Pairs:
    """A record whose JSON has so many bytes."""
    return Pairs([("m", _json(size)[6:-2].decode())])


def _nested(levels: int) -> bytes:
    return b'{"n":[[]],"m":' + b'{"m":' * (levels - 1) + b"1" + b"}" * levels  # with more brackets than levels


def _deep(levels: int) -> Any:
    return Pairs([("m", _deep(levels - 1))]) if levels else 1


# Tells what was made: the last event is none, if there is a reason


def _courier(raws: Sequence[bytes], reason: str, kind: str = "JDAT", level: int = 9) -> Told:
    events = [courier.Event(refused(raw, "")) for raw in raws[:-1]]
    courier.payload(found := Told(), [*events, courier.Event(refused(raws[-1], reason))], kind=kind, level=level)
    return found


def _beats(raws: Sequence[bytes], reason: str, level: int | None = None) -> Told:
    lumberjack.window(found := Told(), b"2J", [lumberjack.beat(refused(raw, reason)) for raw in raws], level=level)
    return found


def _pairs(given: Sequence[tuple[bytes, bytes]], reason: str) -> Told:
    lumberjack.window(found := Told(), b"1D", [lumberjack.pairs(given, reason=reason)])
    return found


def _entries(records: Sequence[Any], reason: str, mode: int = 2, **made: Any) -> Told:
    entries = [forward.Entry(packed([1, each]), repr(each), {}, "1970-01-01T00:00:01Z") for each in records]
    entries[-1] = entries[-1]._replace(reason=reason)
    forward.message(found := Told(), entries, mode, **made)
    return found


def _chunk(chunk: str, reason: str) -> Told:
    return _entries([Pairs()], reason, chunk=chunk)


def _whole(made: Mapping[str, Any], reason: str, mode: int = 2) -> Told:
    """The message is refused as a whole. `made`: its record, its tag, another option."""
    made = {"record": Pairs(), **made}
    found = _entries([made.pop("record")], "", mode, **made)
    raw, first = found.sent[0][0], found.parts[0]
    own = named(b"forward", b"", str(first.attributes["chunk"]).encode(), raw)
    subject = first.subject if len(first.subject) <= 64 else "-"
    return replace(found, parts=[Part(raw, own, subject, source("forward"), "", {}, reason)]) if reason else found


def _body(raw: bytes, reason: str, way: int = 0) -> Told:
    logjam.message(found := Told(), refused(raw, reason), {}, None, way=logjam.WAYS[way])
    return found


def _block(events: Sequence[bytes], reason: str, *, today: bool, name: str = "a", most: int = 1 << 16) -> Told:
    speech = Speech(today=today, segments=(name, "b"))
    speech.append(W1, events, most=most)
    return speech.told


def _named(name: str, reason: str, *, today: bool) -> Told:
    return _block([b"x"], reason, today=today, name=name)


def _filled(size: int, over: int) -> list[bytes]:
    return [b"x" * (size + over)]


FRAME, INFLATED = {"frame_bytes": 4096}, {"inflated_bytes": 4096}
EVENT, DEEP, EVENTS = {"event_bytes": 1024}, {"depth": 5}, {"frame_events": 3}

KINDS, DIALECTS, WAYS = ("JDAT", "EVNT"), (False, True), ((3, forward.ways(0)[1], "gzip"), (4, zstd.compress, "zstd"))
Z: Final = partial(zlib.compress, level=9)

# fmt: off
LIMITS: Final = [
    *(Limit("courier", f"a message, {kind}", partial(_courier, kind=kind, level=0), lambda over: [_json(4065 + over)], FRAME, "LIMITS__FRAME_BYTES") for kind in KINDS),
    *(Limit("courier", f"inflated, {kind}", partial(_courier, kind=kind), lambda over: [_json(4092 + over)], INFLATED, "LIMITS__INFLATED_BYTES") for kind in KINDS),
    *(Limit("courier", f"ratio, {kind}", partial(_courier, kind=kind), lambda over: [_json(BOMB)], _ratio(framed(_json(BOMB)), Z), "LIMITS__RATIO") for kind in KINDS),
    *(Limit("courier", f"1 MiB, {kind}", partial(_courier, kind=kind), lambda over: [_json(MIB - 4 + over)], {"ratio": 9}, "LIMITS__RATIO") for kind in KINDS),
    Limit("courier", "an entry", _courier, lambda over: [_json(4096 + over)], FRAME, "LIMITS__FRAME_BYTES"),
    Limit("courier", "an event", _courier, lambda over: [b"{}", _json(1024 + over)], EVENT, reason="oversized"),
    Limit("courier", "levels", _courier, lambda over: [_nested(5 + over)], DEEP, reason="too_deep"),
    Limit("courier", "levels by far", _courier, lambda over: [_nested(5 + 100_000 * over)], DEEP, reason="too_deep"),
    Limit("courier", "events", _courier, lambda over: [b"{}"] * (3 + over), EVENTS, "LIMITS__FRAME_EVENTS"),
    Limit("lumberjack", "a J", _beats, lambda over: [_json(4086 + over)], FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "a C", partial(_beats, level=0), lambda over: [_json(4069 + over)], FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "inflated", partial(_beats, level=9), lambda over: [_json(4086 + over)], INFLATED, "LIMITS__INFLATED_BYTES"),
    Limit("lumberjack", "ratio", partial(_beats, level=9), lambda over: [_json(BOMB)], _ratio(b"2J\0\0\0\1" + framed(_json(BOMB)), Z), "LIMITS__RATIO"),
    Limit("lumberjack", "1 MiB", partial(_beats, level=9), lambda over: [_json(MIB - 10 + over)], {"ratio": 9}, "LIMITS__RATIO"),
    Limit("lumberjack", "an event", _beats, lambda over: [_json(1024 + over)], EVENT, reason="oversized"),
    Limit("lumberjack", "levels", _beats, lambda over: [_nested(5 + over)], DEEP, reason="too_deep"),
    Limit("lumberjack", "levels by far", _beats, lambda over: [_nested(5 + 100_000 * over)], DEEP, reason="too_deep"),
    Limit("lumberjack", "a window", _beats, lambda over: [b"{}"] * (8 + over), {"window_events": 8}, "LUMBERJACK__WINDOW_EVENTS"),
    Limit("lumberjack", "pairs", _pairs, lambda over: [(b"a", b"b")] * (4 + over), {"pairs": 4}, "LUMBERJACK__PAIRS"),
    Limit("lumberjack", "a D", _pairs, lambda over: [(b"k", b"v" * (4077 + over))], FRAME, "LIMITS__FRAME_BYTES"),
    Limit("lumberjack", "pairs as JSON", _pairs, lambda over: [(b"m", b"v" * (1016 + over))], EVENT, reason="oversized"),
    Limit("forward", "a message", _entries, lambda over: [_map(4075 + over)], FRAME, "LIMITS__FRAME_BYTES"),
    Limit("forward", "an event", _entries, lambda over: (Pairs(), _map(1024 - 13 + over)), EVENT, reason="oversized"),
    Limit("forward", "levels", _entries, lambda over: [_deep(5 + over)], DEEP, reason="too_deep"),
    *(Limit("forward", f"inflated, {ratio}", partial(_whole, mode=mode), lambda over: {"record": _map(4096 + over)}, INFLATED, reason="inflated_limit") for mode, way, ratio in WAYS),
    *(Limit("forward", f"ratio, {ratio}", partial(_whole, mode=mode), lambda over: {"record": _map(BOMB)}, _ratio(packed([1, _map(BOMB)]), way), reason="inflated_limit") for mode, way, ratio in WAYS),
    *(Limit("forward", f"1 MiB, {ratio}", partial(_whole, mode=mode), lambda over: {"record": _map(MIB - 2 + over)}, {"ratio": 9}, reason="inflated_limit") for mode, way, ratio in WAYS),
    Limit("forward", "the tag", _whole, lambda over: {"tag": "t" * (64 + over)}, {"tag_bytes": 64}, reason="bad_message"),
    Limit("forward", "the option", _whole, lambda over: {"more": "x" * (1001 + over)}, {"option_bytes": 1024}, reason="bad_message"),
    Limit("forward", "the chunk", _chunk, lambda over: "c" * (64 + over), {"chunk_bytes": 64}, "FORWARD__CHUNK_BYTES"),
    Limit("forward", "entries", _entries, lambda over: (Pairs(),) * (3 + over), EVENTS, reason="too_many_events"),
    *(Limit("logjam", f"an event, way {way}", partial(_body, way=way), lambda over: _json(1024 + over), EVENT, reason="oversized") for way in range(5)),
    *(Limit("logjam", f"inflated, way {way}", partial(_body, way=way), lambda over: _json(4096 + over), INFLATED, reason="oversized") for way in range(5)),
    Limit("logjam", "ratio", partial(_body, way=1), lambda over: _json(BOMB), _ratio(_json(BOMB), zlib.compress), reason="oversized"),
    Limit("logjam", "1 MiB", partial(_body, way=1), lambda over: _json(MIB + over), {"ratio": 9}, reason="oversized"),
    Limit("logjam", "levels", _body, lambda over: _nested(5 + over), DEEP, reason="too_deep"),
    *(Limit("segment", f"an event, {today}", partial(_block, today=today, most=11), lambda over: [b"", b"x" * (11 + over)], {"event_bytes": 11}, reason="oversized") for today in DIALECTS),
    *(Limit("segment", f"a block, {beside}", partial(_block, today=beside == 24), partial(_filled, 4096 - beside), FRAME, "LIMITS__FRAME_BYTES") for beside in (8, 24)),
    *(Limit("segment", f"a name, {today}", partial(_named, today=today), lambda over: "n" * (1024 + over), {}, "") for today in DIALECTS),
]
