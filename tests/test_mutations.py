"""Mutated captures of every codec give events, replies or `ProtocolError`, the same whole and in pieces."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from headrace_common.session.interface import Message
from headrace_courier.wire import HEADER, PING, entry, evnt, jdat
from headrace_forward.entries.zstd import zstd
from headrace_forward.wire import EventTime, encode
from headrace_lumberjack.wire import compressed, json_frame, pairs_frame, window

from tests.courier import driving as courier
from tests.driving import NOW_MS, without_chance
from tests.forward import driving as forward
from tests.logjam import driving as logjam
from tests.logjam import test_vectors as device
from tests.lumberjack import driving as lumberjack
from tests.mutation import Change, cuts, mutated, the_same_in_pieces
from tests.segment import test_original_wire, test_today_wire
from tests.segment.recorded import EARLY, ORIGINAL, TODAY
from tests.tiers import sized

HERE = Path(__file__).parent


def captures(protocol: str, pattern: str = "*.bin") -> list[bytes]:
    return [path.read_bytes() for path in sorted((HERE / protocol / "vectors").rglob(pattern))]


RECORDS = [
    {"m": 'hello [x] {y} "z" \\'},
    {"n": {"k": [1, None, True, 1.5]}, "é": "ü\n"},
    {},
    {"[": "]", "t": "x" * 300},
]
ENTRIES = [(EventTime(1_700_000_000 + n, n), record) for n, record in enumerate(RECORDS)]
PACKED = b"".join(forward.pack([time.encode(), record]) for time, record in ENTRIES)


def _forward() -> list[bytes]:
    modes = ("Message", "Forward", "PackedForward", "CompressedPackedForward")
    made = [encode("app.log", ENTRIES, mode=mode, chunk="c1") for mode in modes]
    found = [data for data in captures("forward") if data[:1] not in (b"[", b"{")]
    return [b"\xc0", *made, *found]


def _packed_again(data: bytes, chance: random.Random) -> bytes:
    """A message with a payload of mutated entries, compressed in whatever way."""
    body = mutated([PACKED], chance)
    ways = (gzip.compress, zstd.compress, lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:]), bytes)
    payload = chance.choice(ways)(body)
    option = {"chunk": "c", "compressed": chance.choice(("gzip", "zstd", "text"))}
    return b"\x93\xa1t" + forward.pack(payload) + forward.pack(option)


JSON = [
    b'["a",1700000000,{"m":"x"},{"chunk":"c"}]',
    b'["g[o.test",1700000000,{"m":"y\\"]}"},{"chunk":"c]"}]',
    '["é",[[1,{"a":"ü["}],[[1.5,{"h":1}],{}]],{"size":2,"chunk":"d"}]'.encode(),
    b'["t",0,{"u":"\\ud83d\\ude00","d":[[[[[["{"]]]]]]}]',
    b" null\r\n",
]


def _courier() -> list[bytes]:
    hello = courier.HELO
    events = [*courier.numbered(5), b"{}", b"[]", b""]
    return [
        hello, PING, jdat(courier.NONCE, events), evnt(courier.NONCE[::-1], events), evnt(bytes(16), []),
        HEADER.pack(b"NEWS", 3) + b"abc", *captures("courier", "*.c2s.bin"),
    ]  # fmt: skip


def _inflated_otherwise(data: bytes, chance: random.Random) -> bytes:
    """A payload of mutated entries."""
    content = mutated([entry(event) for event in courier.numbered(6)], chance)
    return courier.payload(content, kind=chance.choice((b"JDAT", b"EVNT")), level=chance.choice((0, 1, 9)))


FRAMES = [
    window(2), window(3), window(1, 0x31), json_frame(1, lumberjack.document(1)), json_frame(2, lumberjack.document(2)),
    json_frame(0, b"{}"), pairs_frame(1, [(b"line", b"x"), (b"host", b"h")]), pairs_frame(1, []),
]  # fmt: skip


def _lumberjack() -> list[bytes]:
    sound = [window(2) + compressed(FRAMES[3] + FRAMES[4]), window(1) + FRAMES[3], window(2) + FRAMES[3] + FRAMES[4]]
    return [*sound, *FRAMES, *captures("lumberjack", "*.c2s.bin")]


def _compressed_again(data: bytes, chance: random.Random) -> bytes:
    """A window whose frames are mutated inside their C frame."""
    inside = mutated(FRAMES, chance)
    return window(chance.randint(0, 4)) + compressed(inside, level=chance.choice((0, 3, 9)))


@dataclass(frozen=True)
class Codec:
    """How to drive it, and with what."""

    outcome: Callable[[Iterable[bytes]], Any]
    corpus: Sequence[bytes]
    changes: Sequence[Change] = ()
    share: float = 1.0


def session(drive: Callable[[Iterable[bytes]], Any]) -> Callable[[Iterable[bytes]], Any]:
    return lambda pieces: drive(pieces).comparable()


CODECS = {
    "forward": Codec(session(forward.drive), _forward(), (_packed_again,)),
    "forward-json": Codec(session(forward.drive), [*JSON, *captures("forward", "json_*.bin")], share=2),
    "lumberjack": Codec(session(lumberjack.drive), _lumberjack(), (_compressed_again,)),
    "courier": Codec(session(courier.drive), _courier(), (_inflated_otherwise,)),
    "segment-original": Codec(test_original_wire.fed, [vector["data"] for vector in ORIGINAL.values()]),
    "segment-today": Codec(
        test_today_wire.fed, [vector["data"] for vectors in (TODAY, EARLY) for vector in vectors.values()]
    ),
}


@pytest.mark.parametrize("name", CODECS)
def test_mutated_captures(name: str) -> None:
    codec = CODECS[name]
    the_same_in_pieces(codec.outcome, codec.corpus, codec.changes, seed=1, share=codec.share)


def test_mutated_messages_of_devices() -> None:
    """Logjam's transport keeps messages whole: what may differ is how many the event loop reads in one turn."""
    corpus = [device.frames(message) for _, _, message in device.CASES]

    def outcome(messages: Sequence[Sequence[bytes]], turns: Sequence[int]) -> Any:
        found = logjam.driven()
        for start, end in zip((0, *turns), (*turns, len(messages)), strict=True):
            for parts in messages[start:end]:
                found.session.receive(Message(parts, logjam.ROUTE, logjam.ADDRESS), NOW_MS)
            for frame in found.turn():
                found.store(frame)
            found.hear()
        parts = sorted(repr(without_chance(part)) for part in found.flat)  # streams do not wait for each other
        return parts, found.replies, found.ignored, found.session.idle()

    for number in range(sized(60, 3_000, 30_000)):
        chance = random.Random(f"logjam-{number}")
        messages = []
        for _ in range(chance.randint(1, 6)):
            parts = list(chance.choice(corpus))
            for _ in range(chance.choice((0, 1, 1, 3))):
                at = chance.randrange(len(parts))
                others = [each[min(at, len(each) - 1)] for each in corpus]
                parts[at] = mutated([parts[at]] * 3 + others, chance, (_deflated_again,), most=1)
            del parts[chance.choice((4, 4, 4, 4, 3, 1)) :]
            messages.append([b"", *parts] if chance.random() < 0.7 else parts)
        assert outcome(messages, cuts(len(messages), chance)) == outcome(messages, ()), f"{number}: {messages}"


def _deflated_again(data: bytes, chance: random.Random) -> bytes:
    return zlib.compress(mutated([data, b'{"a":1}'], chance, most=1))
