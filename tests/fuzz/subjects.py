"""What is fuzzed: the session of each protocol, with captures of real clients and conversations of which the truth is known."""

from __future__ import annotations

import gzip
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import orjson
from headrace_common.session.inflate import zstd
from headrace_courier.wire import HEADER, PING, entry, evnt, jdat
from headrace_forward.wire import EventTime
from headrace_lumberjack.wire import compressed, json_frame, pairs_frame, window

from tests.courier import driving as courier
from tests.driving import Drive, without_chance
from tests.forward import driving as forward
from tests.forward.driving import Mode, encode
from tests.fuzz.chance import Chance, Sent, flat
from tests.fuzz.mutation import Change, mutated, pieces, spoiled
from tests.fuzz.truth import Told
from tests.fuzz.truth import courier as courier_truth
from tests.fuzz.truth import forward as forward_truth
from tests.fuzz.truth import logjam as logjam_truth
from tests.fuzz.truth import lumberjack as lumberjack_truth
from tests.fuzz.truth import segment as segment_truth
from tests.logjam import driving as logjam
from tests.logjam import test_vectors as device
from tests.lumberjack import driving as lumberjack
from tests.segment import instant
from tests.segment.recorded import ORIGINAL, TODAY

TESTS: Final = Path(__file__).parents[1]

gzipped = partial(gzip.compress, mtime=0)  # the time of day would make another input of the same number


NUMBER: Final = re.compile(r"\d+")


def captures(protocol: str, pattern: str = "*.bin") -> list[bytes]:
    return [path.read_bytes() for path in sorted((TESTS / protocol / "vectors").rglob(pattern))]


def alone(messages: Sequence[bytes]) -> Sent:
    return [[message] for message in messages]


@dataclass(frozen=True)
class Subject:
    """A session. `drive`: what comes of messages in pieces cut at these places, with these limits; `comparable`: what of that
    must not depend on the places; `replies`: what of it the truth tells. `tell`: tells a conversation. `messages`: it is cut
    between these alone.
    """

    drive: Callable[..., Any]
    replies: Callable[[Any], list[Any]]
    corpus: Sent
    tell: Callable[[Chance], Told]
    changes: Sequence[Change] = ()
    comparable: Callable[[Any], Any] = lambda outcome: outcome.comparable()
    messages: bool = False

    def length(self, sent: Sent) -> int:
        """How many places there are to cut at."""
        return len(sent) if self.messages else len(flat(sent))


def of_bytes(drive: Drive) -> Callable[..., Any]:
    return lambda sent, at=(), **limits: drive(pieces(flat(sent), at), **limits)


# Forward


RECORDS = [
    {"m": 'hello [x] {y} "z" \\'},
    {"n": {"k": [1, None, True, 1.5]}, "é": "ü\n"},
    {},
    {"[": "]", "t": "x" * 300},
]
ENTRIES: list[tuple[EventTime, Any]] = [(EventTime(1_700_000_000 + n, n), record) for n, record in enumerate(RECORDS)]
PACKED = [forward.pack([time.encode(), record]) for time, record in ENTRIES]


def _forward() -> list[bytes]:
    made = [encode("app.log", ENTRIES, mode=mode, chunk="c1") for mode in get_args(Mode)]
    found = [data for data in captures("forward") if data[:1] not in (b"[", b"{")]
    return [b"\xc0", *made, *found]


def _packed_again(data: bytes, chance: random.Random) -> bytes:
    """A message with a payload of mutated entries, compressed in whatever way."""
    body = flat(mutated(alone([b"".join(PACKED)]), chance))
    ways = (gzipped, zstd.compress, lambda data: gzipped(data[:50]) + gzipped(data[50:]), bytes)
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


def _json() -> list[bytes]:
    return [*JSON, *captures("forward", "json_*.bin")]


# Courier


def _courier() -> list[bytes]:
    events = [*courier.numbered(5), b"{}", b"[]", b""]
    return [
        courier.HELO, PING, jdat(courier.NONCE, events), evnt(courier.NONCE[::-1], events), evnt(bytes(16), []),
        HEADER.pack(b"NEWS", 3) + b"abc", *captures("courier", "*.c2s.bin"),
    ]  # fmt: skip


def _inflated_otherwise(data: bytes, chance: random.Random) -> bytes:
    """A payload of mutated entries."""
    content = flat(mutated(alone([entry(event) for event in courier.numbered(6)]), chance))
    return courier.payload(content, kind=chance.choice((b"JDAT", b"EVNT")), level=chance.choice((0, 1, 9)))


# Lumberjack

FRAMES = [
    window(2), window(3), window(1, 0x31), json_frame(1, lumberjack.document(1)), json_frame(2, lumberjack.document(2)),
    json_frame(0, b"{}"), pairs_frame(1, [(b"line", b"x"), (b"host", b"h")]), pairs_frame(1, []),
]  # fmt: skip


def _lumberjack() -> list[bytes]:
    sound = [window(2) + compressed(FRAMES[3] + FRAMES[4]), window(1) + FRAMES[3], window(2) + FRAMES[3] + FRAMES[4]]
    return [*sound, *FRAMES, *captures("lumberjack", "*.c2s.bin")]


def _compressed_again(data: bytes, chance: random.Random) -> bytes:
    """A window whose frames are mutated inside their C frame."""
    inside = flat(mutated(alone(FRAMES), chance))
    return window(chance.randint(0, 4)) + compressed(inside, level=chance.choice((0, 3, 9)))


# Logjam


def _turns(sent: Sent, turns: Sequence[int] = (), **limits: Any) -> logjam.Driven:
    """Its transport keeps messages whole: what may differ is how many are read together."""
    found = logjam.driven(**limits)
    for start, end in zip((0, *turns), (*turns, len(sent)), strict=True):
        for frame in found.send(*sent[start:end]):
            found.store(frame)
        found.hear()
    return found


def _of_turns(found: logjam.Driven) -> Any:
    parts = sorted(repr(without_chance(part)) for part in found.flat)  # streams do not wait for each other
    return parts, found.replies


def _devices() -> Sent:
    messages = [device.frames(message) for _, _, message in device.CASES]
    return [*messages, *(logjam.asking(frames) for frames in messages)]


def _deflated_again(data: bytes, chance: random.Random) -> bytes:
    return zlib.compress(flat(mutated([[data], [b'{"a":1}']], chance, most=1)))


# Segments


def _levels(outcome: instant.Conversation) -> list[tuple[bytes, int]]:
    said = {reply.writer: reply.level for reply in outcome.said() if type(reply).__name__ == "DataAppended"}
    return sorted(said.items())


def _of_writers(outcome: instant.Conversation) -> Any:
    """A fault that shows only when a request has its turn ends a conversation of which more or less is answered by then. Of two
    writers with the same fault, either may be the first.
    """
    return outcome.comparable() if outcome.error is None else (NUMBER.sub("", str(outcome.error)), outcome.error.limit)


def _conversations(vectors: Mapping[str, Mapping[str, Any]]) -> Sent:
    return alone([vector["data"] for vector in vectors.values()])


_ORIGINAL, _TODAY = (partial(segment_truth.told, dialects=(today,)) for today in (False, True))
_FORWARD: Final = of_bytes(forward.drive)

PROTOCOLS: Final[Mapping[str, Sequence[Subject]]] = {
    "forward": [
        Subject(_FORWARD, lambda made: made.replies, alone(_forward()), forward_truth.told, (_packed_again,)),
        Subject(_FORWARD, lambda made: [*map(orjson.loads, made.replies)], alone(_json()), forward_truth.in_json),
    ],
    "lumberjack": [
        Subject(
            of_bytes(lumberjack.drive), lambda made: made.acks, alone(_lumberjack()), lumberjack_truth.told,
            (_compressed_again,),
        ),
    ],
    "courier": [
        Subject(
            of_bytes(courier.drive), lambda made: made.acknowledged, alone(_courier()), courier_truth.told,
            (_inflated_otherwise,),
        ),
    ],
    "logjam": [
        Subject(
            _turns, lambda made: [reply[1:] for reply in made.replies], _devices(), logjam_truth.told, (_deflated_again,),
            _of_turns, messages=True,
        ),
    ],
    "segment": [
        Subject(of_bytes(instant.drive), _levels, _conversations(vectors), tell, comparable=_of_writers)
        for vectors, tell in ((ORIGINAL, _ORIGINAL), (TODAY, _TODAY))
    ],
}  # fmt: skip


def made(protocol: str, seed: str) -> tuple[Subject, Sent, random.Random]:
    """The input of a seed: mutated captures, or a conversation with a few changes; and chance for more."""
    chance = Chance(seed)
    subject = chance.choice(PROTOCOLS[protocol])
    if chance.perhaps(0.5):
        return subject, mutated(subject.corpus, chance, subject.changes), chance
    return subject, spoiled(subject.tell(chance).sent, subject.corpus, chance), chance
