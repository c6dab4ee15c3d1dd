"""Inputs that grow: processor time is linear in what arrives (or inflates), and what is held is counted.

Each has one thing of which there are more and more. It is measured at a size, and at 2, 4 and 8 times that size. Time that is
linear doubles three times; a step, where a limit or another way begins, is one step. So the middle of the three factors judges.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import statistics
import time
import tracemalloc
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from headrace_common.operations.errors import ProtocolError
from headrace_common.session.inflate import zstd
from headrace_common.session.interface import ByteSession, Frame, Message, MessageSession
from headrace_courier.wire import PING, jdat
from headrace_lumberjack.wire import V1, compressed, json_frame, pairs_frame, window
from headrace_segment.session.conversation import SegmentSession
from headrace_segment.wire.codes import Kind

from tests.courier import driving as courier
from tests.driving import NOW_MS, PEER, traced
from tests.forward import driving as forward
from tests.forward.driving import pack
from tests.fuzz.chance import Sent, flat
from tests.logjam import driving as logjam
from tests.logjam.driving import ADDRESS, ROUTE, asking, event
from tests.lumberjack import driving as lumberjack
from tests.segment import instant, speaking, speaking_today

READ: Final = 64 << 10
"""Bytes of one read."""

STEEP: Final = 2.7
"""A factor above this, for twice the size, is more than linear. Linear time has 2, the square 4, the power of 1.5 has 2.8."""

AGAIN: Final = 20
"""How often what is steep is measured again: the least of all times counts, since others use the machine, too."""

LEAST: Final = 0.004
"""CPU-seconds that the smallest of the four sizes takes at least: below, other things are measured."""

MOST_BYTES: Final = 256 << 10
MOST_THINGS: Final = 1 << 17
"""Of the smallest of the four: at 8 times that, an event is above LIMITS__EVENT_BYTES."""

HELD: Final = 4
SLACK: Final = 1 << 20
"""A session holds at most `HELD` times the bytes that it says it holds, and `SLACK`."""

# What grows

DOCUMENTS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "keys": lambda n: b"{" + b",".join(b'"k%d":1' % each for each in range(n)) + b"}",
    "one key": lambda n: b"{" + b",".join([b'"k":1'] * n) + b"}",
    "items": lambda n: b'{"a":[' + b",".join([b'{"x":1.5}'] * n) + b"]}",
    "levels": lambda n: b'{"a":' * n + b"1" + b"}" * n,
    "levels without an end": lambda n: b'{"a":' + b'[{"x":' * n,
    "brackets in a text": lambda n: b'{"a":"' + b"[{" * n + b'"}',
    "escapes": lambda n: b'{"a":"' + b'\\"\\\\' * n + b'"}',
    "half a letter": lambda n: b'{"a":"' + b"\\ud800" * n + b'"}',
    "no UTF-8": lambda n: b'{"a":"' + b"\xff\xed\xa0" * n + b'"}',
    "no UTF-8 in each text": lambda n: b'{"a":[' + b",".join([b'"\xff"'] * n) + b"]}",
    "maps 60 deep": lambda n: b'{"a":[' + b",".join([b'{"k":' * 60 + b"1" + b"}" * 60] * n) + b"]}",
    "a wide letter": lambda n: b'{"a":"' + b"x" * n + "\U0001f600".encode() + b'"}',
    "digits": lambda n: b'{"a":' + b"9" * n + b"}",
    "numbers that are none": lambda n: b'{"a":[' + b",".join([b"1e999"] * n) + b"]}",
    "names": lambda n: b'{"%b":"x"}' % b'":"x","'.join([b"@timestamp", b"type", b"host", b"agent", b"message"] * n),
    "a name": lambda n: b'{"type":"%b","host":"%b","@timestamp":"%b"}' % (b"t" * n, b"h" * n, b"2" * n),
}
"""An event as JSON."""


def _many(count: int, header: bytes, things: bytes) -> bytes:
    """An array or a map of so many things."""
    return header + count.to_bytes(4, "big") + things


PACKED: Final[Mapping[str, Callable[[int], bytes]]] = {
    "keys": lambda n: _many(n, b"\xdf", b"".join(pack(f"k{each}") + b"\1" for each in range(n))),
    "one key": lambda n: _many(n, b"\xdf", b"\xa1k\1" * n),
    "keys that are numbers": lambda n: _many(n, b"\xdf", b"".join(pack(each) + b"\1" for each in range(n))),
    "keys of bytes": lambda n: _many(n, b"\xdf", b"\xc4\1\xff\1" * n),
    "items": lambda n: (
        b"\x81\xa1a" + _many(n, b"\xdd", b"\xcb\x7f\xf8\0\0\0\0\0\0\xd4\5\0\xc0" * (n // 3) + b"\xc0" * (n % 3))
    ),
    "levels": lambda n: b"\x81\xa1a" * n + b"\1",
    "keys in keys": lambda n: b"\x81" * n + b"\xa1a" + b"\1" * n,
    "maps 60 deep": lambda n: b"\x81\xa1a" + _many(n, b"\xdd", (b"\x81\xa1k" * 60 + b"\xc0") * n),
    "a wide letter": lambda n: b"\x81\xa1a\xdb" + (n + 4).to_bytes(4, "big") + b"x" * n + "\U0001f600".encode(),
    "a text": lambda n: b"\x81\xa1a\xdb" + n.to_bytes(4, "big") + b'"' * n,
    "no UTF-8": lambda n: b"\x81\xa1a\xdb" + n.to_bytes(4, "big") + b"\xff" * n,
    "bytes": lambda n: b"\x81\xa1a\xc6" + n.to_bytes(4, "big") + b"\xff" * n,
}
"""A record of Forward."""


class Growing(NamedTuple):
    """What grows in the input of a session: `sent` makes so many."""

    name: str
    session: Callable[[], ByteSession | MessageSession]
    sent: Callable[[int], Sent]


def _rows(
    name: str, session: Callable[[], ByteSession | MessageSession], around: Callable[[bytes], list[bytes]],
    of: Mapping[str, Callable[[int], bytes]],
) -> list[Growing]:  # fmt: skip
    """For each thing of which there are more and more, the message around it."""
    return [Growing(f"{name}: {what}", session, partial(_message, around, made)) for what, made in of.items()]


def _message(around: Callable[[bytes], list[bytes]], made: Callable[[int], bytes], count: int) -> Sent:
    return [around(made(count))]


def _streams(name: str, session: Callable[[], ByteSession], **of: Callable[[int], bytes]) -> list[Growing]:
    return _rows(name, session, lambda data: [data], of)


def _producers() -> MessageSession:
    return logjam.driven().session


def _segments() -> ByteSession:
    return SegmentSession(PEER, instant.LIMITS, instant.SECTION)


def _flushed(n: int) -> bytes:
    """A stream of zlib with many flushes."""
    stream = zlib.compressobj(1)
    parts = [stream.compress(b"\0\0\0\2{}") + stream.flush(zlib.Z_FULL_FLUSH) for _ in range(n)]
    return b"".join(parts) + stream.flush()


ENTRY: Final = b"\x92\1\x81\xa1m\1"
BLOCK: Final = speaking.setup()
HELLO: Final = speaking_today.HELLO + speaking_today.create() + speaking_today.setup()

FEW: Final = {name: DOCUMENTS[name] for name in ("keys", "levels", "names", "a name")}
"""Those that a protocol reads in a way of its own."""

# fmt: off
GROWING: Final = [
    *_rows("courier", courier.session, lambda raw: [jdat(courier.NONCE, [raw])], DOCUMENTS),
    *_rows("lumberjack", lumberjack.session, lambda raw: [window(1) + json_frame(1, raw)], FEW),
    *_rows("forward", forward.session, lambda raw: [b'["t",1,%b,{"chunk":"c"}]' % raw], DOCUMENTS),
    *_rows("logjam", _producers, lambda raw: asking(event(raw, len(raw) % 4)), FEW),
    *_rows("forward, alone", forward.session, lambda record: [forward.message(record, option={"chunk": "c"})], PACKED),
    *_rows("forward, packed", forward.session, lambda record: [pack(["t", b"\x92\1" + record, {"chunk": "c"}])], PACKED),
    *_streams(
        "courier", courier.session,
        events=lambda n: jdat(courier.NONCE, [b"{}"] * n), empty=lambda n: courier.evnt(courier.NONCE, [b""] * n),
        payloads=lambda n: jdat(courier.NONCE, [b"{}"]) * n, pings=lambda n: PING * n,
        flushes=lambda n: courier.HELO + b"JDAT" + (16 + len(_flushed(n))).to_bytes(4, "big") + bytes(16) + _flushed(n),
    ),
    *_streams(
        "lumberjack", lumberjack.session,
        windows=lambda n: (window(1) + json_frame(1, b"{}")) * n, empty=lambda n: window(0) * n,
        events=lambda n: window(n) + b"".join(json_frame(each, b"{}") for each in range(1, n + 1)),
        inflated=lambda n: window(n) + compressed(b"".join(json_frame(each, b"{}") for each in range(1, n + 1))),
        pairs=lambda n: window(1, V1) + pairs_frame(1, [(b"k%d" % each, b"v") for each in range(n)]),
        one_key=lambda n: window(1, V1) + pairs_frame(1, [(b"k", b"\xff")] * n),
        a_value=lambda n: window(1, V1) + pairs_frame(1, [(b"k", b"\xff" * n)]),
    ),
    *_streams(
        "forward", forward.session,
        nils=lambda n: b"\xc0" * n, messages=lambda n: forward.message(pack({}), option={"chunk": "c"}) * n,
        entries=lambda n: b"\x93\xa1t" + _many(n, b"\xdd", ENTRY * n) + pack({"chunk": "c"}),
        packed=lambda n: pack(["t", ENTRY * n, {"chunk": "c"}]),
        members=lambda n: pack(["t", gzip.compress(b"", mtime=0) * n, {"compressed": "gzip"}]),
        zstandard=lambda n: pack(["t", bytes(zstd.compress(b"")) * n, {"compressed": "zstd"}]),
        padding=lambda n: pack(["t", gzip.compress(ENTRY, mtime=0) + bytes(n), {"compressed": "gzip"}]),
        listed=lambda n: b'["t",[' + b",".join([b"[1,{}]"] * n) + b'],{"chunk":"c"}]', spaces=lambda n: b"[" + b" " * n,
        option=lambda n: b"\x94\xa1t\1\x80" + PACKED["keys"](n), deep=lambda n: b"\x94\xa1t\1\x80" + PACKED["levels"](n),
    ),
    Growing("logjam: messages", _producers, lambda n: [asking(event({}))] * n),
    Growing("logjam: applications", _producers, lambda n: [asking(event({}, app_env=b"a-%d" % each)) for each in range(n)]),
    *_streams(
        "segment", _segments,
        events=lambda n: BLOCK + speaking.block(0, speaking.event(b"x") * n),
        blocks=lambda n: BLOCK + b"".join(speaking.block(9 * each, speaking.event(b"x")) for each in range(n)),
        parts=lambda n: speaking.in_parts(speaking.setup(), [1] * n), alive=lambda n: speaking.keep_alive() * n,
        padding=lambda n: BLOCK + speaking.block(0, speaking.event(b"x") + speaking.raw(Kind.PADDING, b"") * n, length=9),
        reads=lambda n: speaking.read() * n,
    ),
    *_streams(
        "segment today", _segments,
        events=lambda n: HELLO + speaking_today.append(n, *[b"x"] * n),
        blocks=lambda n: HELLO + b"".join(speaking_today.append(each, b"x") for each in range(1, n + 1)),
        questions=lambda n: HELLO + speaking_today.info() * n, alive=lambda n: HELLO + speaking_today.KEEP_ALIVE * n,
    ),
]
# fmt: on

# What it costs


class Cost(NamedTuple):
    """CPU-seconds that an input has cost, and the bytes that were sent."""

    spent: float
    size: int


class Meter:
    """Drives a session as a connection does."""

    def __init__(self, session: ByteSession | MessageSession) -> None:
        self.session: Any = session
        self.frames: deque[Frame] = deque()
        self.held = 0
        """Bytes of frames that are not built."""
        self._store = instant.InstantStore()

    def read(self, message: Any) -> None:
        """One read, and what the session hands out of it: frames, and questions, which are answered at once."""
        self.session.receive(message, NOW_MS)
        while self.session.status().busy:
            self.session.receive(b"" if isinstance(message, bytes) else Message(()), NOW_MS)
        self._take()

    def _take(self) -> None:
        self._hand_out()
        while questions := list(self.session.questions()):
            for question in questions:
                try:
                    self.session.answered(question.ticket, self._store.answer(question))
                finally:
                    self._hand_out()

    def _hand_out(self) -> None:
        found = list(self.session.frames())
        self.frames += found
        self.held += sum(frame.size for frame in found)

    def serve(self) -> None:
        """Builds and stores frames, and hears replies."""
        while self.frames:
            frame = self.frames.popleft()
            count = sum(len(run) if isinstance(run, list) else not isinstance(run, int) for run in frame.runs())
            self.session.stored(frame.ticket, count, True)
            self._take()
        while self.session.outgoing():
            pass


def reads(session: ByteSession | MessageSession, sent: Sent) -> Iterator[Any]:
    """What arrives at once: pieces of the stream, or messages."""
    if isinstance(session, MessageSession):
        return (Message(parts, ROUTE, ADDRESS) for parts in sent)
    data = flat(sent)
    return (data[at : at + READ] for at in range(0, len(data), READ))


def run(growing: Growing, arriving: Iterable[Any], each: Callable[[Meter], None]) -> None:
    """Drives an input until it ends or is refused; `each` is called behind every read."""
    meter = Meter(growing.session())
    with contextlib.suppress(ProtocolError):
        for read in arriving:
            meter.read(read)
            each(meter)
    each(meter)


def cost(growing: Growing, size: int) -> Cost:
    """What an input costs."""
    arriving = list(reads(growing.session(), sent := growing.sent(size)))
    gc.collect()
    began = time.thread_time()
    run(growing, arriving, Meter.serve)
    return Cost(time.thread_time() - began, len(flat(sent)))


def held(growing: Growing, size: int) -> tuple[int, int]:
    """(bytes in memory, bytes that it says it holds), where the first is largest; its frames wait for the publisher."""
    arriving = list(reads(growing.session(), growing.sent(size)))
    found = [(0, 0)]

    def note(meter: Meter) -> None:
        status = meter.session.status()
        found.append((tracemalloc.get_traced_memory()[0], status.partial_bytes + status.waiting_bytes + meter.held))

    gc.collect()
    with traced():
        run(growing, arriving, note)
    return max(found, key=lambda pair: pair[0] - HELD * pair[1])


def factor(costs: list[Cost]) -> float:
    """The middle factor by which the time grows for twice the size; where more than twice the bytes come, for twice these."""
    return statistics.median(
        after.spent / max(before.spent, LEAST / 2) / max(1, after.size / max(1, before.size) / 2)
        for before, after in pairwise(costs)
    )


def problem(growing: Growing) -> str:
    """What is wrong with an input at four sizes; "" if nothing is. What is suspicious is measured again."""
    size = 64
    while (first := cost(growing, size)).spent < LEAST and first.size < MOST_BYTES and size < MOST_THINGS:
        size *= 2
    memory, said = held(growing, 8 * size)
    if memory > HELD * said + SLACK:
        return f"{memory} bytes held where it says {said}"
    if first.spent < LEAST:
        return ""
    costs = [first, *(cost(growing, size * times) for times in (2, 4, 8))]
    for _ in range(AGAIN):
        if factor(costs) <= STEEP:
            return ""
        costs = [min(cost(growing, size * times), before) for times, before in zip((1, 2, 4, 8), costs, strict=True)]
    shown = ", ".join(f"{each.size} B {each.spent * 1000:.0f} ms" for each in costs)
    return f"twice the size takes {factor(costs):.1f} times the time: {shown}"
