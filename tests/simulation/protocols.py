"""The client's side of each protocol: its client, which goes on with its next connection."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

import headrace_courier.protocol as courier
import headrace_forward.protocol as forward
import headrace_logjam.protocol as logjam
import headrace_lumberjack.protocol as lumberjack
import headrace_segment.protocol as segment
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.protocol import Protocol, installed
from headrace_common.session.client import Answer, Client, Compression, Remark
from headrace_courier.client import CourierClient
from headrace_courier.wire import jdat
from headrace_forward.client import ForwardClient
from headrace_logjam.client import MESSAGE_FRAMES, LogjamClient, unasking
from headrace_logjam.wire import joined, split
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.wire import HEADER, V1

from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect, Values
from tests.contract.forward import ForwardDialect
from tests.contract.installed import InstalledDialect
from tests.contract.logjam import GREETING, READY, Answers, LogjamDialect, message
from tests.contract.lumberjack import LumberjackDialect
from tests.simulation.loop import EPOCH, replaced


class Speaker:
    """A client over several connections; `compresses`: its sound frames are compressed, which the receiver inflates."""

    def __init__(self, client: Callable[[Compression | None], Client], compresses: bool) -> None:
        self._make = client
        self._client: Any = client(None)
        self._compresses = compresses
        self._fresh: set[int] = set()  # made on this connection, and not yet sent
        self._documents: dict[int, list[bytes]] = {}  # of each frame
        self.instant: int | None = None
        """The time of all its events, in ns: equal ones have the same bytes, but for their names. None: each has its own."""

    @property
    def compresses(self) -> bool:
        return self._compresses

    @compresses.setter
    def compresses(self, wanted: bool) -> None:
        if wanted and not self._compresses:
            self._client = self._make(Compression("gzip"))
        self._compresses = wanted

    @property
    def breaks(self) -> bool:
        """Whether it can send an event that cannot be understood."""
        return bool(self._client.broken({}))

    def sent_broken(self, number: int) -> bytes:
        """The event in the middle of frame `number`, which cannot be understood."""
        return self._documents[number][(len(self._documents[number]) - 1) // 2]

    def frame(self, values: Values, broken: int = 0) -> bytes:
        """A frame. `broken`: how many equal events are in its middle that cannot be understood."""
        self._fresh.add(self._client.made)
        with nullcontext() if self.instant is None else replaced((time, "time_ns", lambda: self.instant)):
            documents = [self._client.document(value) for value in values]
            middle = len(documents) // 2
            documents[middle:middle] = [self._client.broken(values[0])] * broken if broken else []
            self._documents[self._client.made] = documents
            return self._framed(documents, middle, broken)

    def _framed(self, documents: list[bytes], middle: int, broken: int) -> bytes:
        return self._client.payload(documents)

    def again(self) -> bytes:
        """A new connection. Returns what it begins with."""
        self._fresh.clear()
        return self._client.again()

    def rest(self, number: int, count: int) -> bytes:
        """Frame `number` without its first `count` events, which were acknowledged: what a real client sends again of it."""
        self._documents[number] = documents = self._documents[number][count:]
        self._client._sizes[number] = len(documents)
        return self._client.rest(number, documents)

    def sent(self, number: int) -> None:
        """Frame `number` is being sent on this connection."""
        if number in self._fresh:
            self._fresh.discard(number)
        else:
            self._client.repeat(number)

    def receive(self, data: bytes) -> list[Answer]:
        """The acknowledgements, of parts of frames too; a keep-alive is one of no event."""
        return [each for each in self._client.receive(data) if isinstance(each, Answer)]


class Forwarder(LumberjackClient):
    """A client of version 1. It takes any six bytes for the acknowledgement of its oldest window, as logstash-forwarder does."""

    def __init__(self, compression: Compression | None = None) -> None:
        super().__init__(compression, V1)
        self._heard_bytes = 0

    def broken(self, _: Mapping[str, Any]) -> bytes:
        return b""

    def again(self) -> bytes:
        self._heard_bytes = 0
        return super().again()

    def receive(self, data: bytes) -> list[Answer | Remark]:
        count, self._heard_bytes = divmod(self._heard_bytes + len(data), HEADER)
        if count > len(self._under_way):
            raise ProtocolError(f"{count} acknowledgements, and {len(self._under_way)} windows wait for one")
        frames = [self._under_way.popleft() for _ in range(count)]
        return [Answer(frame, self._sizes[frame], self._sizes[frame]) for frame in frames]


class Lumber(LumberjackDialect):
    """Events of version 1 have a whole document in their line."""

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return super().value(orjson.loads(stored["line"]) if "line" in stored else stored)


class Courier(CourierClient):
    """It goes on behind an acknowledged part of a payload, with the rest under the same nonce, as log-courier does."""

    def rest(self, number: int, documents: list[bytes]) -> bytes:
        nonce = next(key for key, frame in self._keys.items() if frame == number)
        assert isinstance(nonce, bytes)
        self._said.pop(nonce, None)
        return jdat(nonce, documents, level=self.level)


class Unasking(Speaker):
    """A client of Forward whose messages have no chunk."""

    def _framed(self, documents: list[bytes], middle: int, broken: int) -> bytes:
        return self._client.unasking(documents)


class Hashing(ForwardClient):
    """It names a chunk by its content, as Fluent Bit does: two of them may name theirs alike."""

    def packed(self, entries: bytes, size: int, **option: str) -> bytes:
        digest = hashlib.sha512(entries).digest()
        with replaced((os, "urandom", lambda length: digest[:length])):
            return super().packed(entries, size, **option)


def hashing() -> Speaker:
    made = Speaker(Hashing, False)
    made.instant = WHOLE
    return made


class Nameless(LogjamClient):
    """Its events have no id of their own, so no two of them have one id."""

    def document(self, event: Mapping[str, Any]) -> bytes:
        return orjson.dumps(dict(event))


class ZmtpSpeaker(Speaker):
    """A producer of Logjam behind ZMTP. `app_envs`: see `LogjamClient`; `asks`: it waits for answers; `told`: its messages have
    meta; `named`: its events have an id.
    """

    def __init__(self, app_envs: int = 1, *, asks: bool = True, told: bool = True, named: bool = True) -> None:
        kind = LogjamClient if named else Nameless
        super().__init__(lambda wanted: kind(Compression("zlib" if wanted else "none"), app_envs), False)
        self._asks, self._told = asks, told
        self._answers = Answers()
        self._greeting = 0
        self.answer: list[bytes] = []
        """The last."""
        self.shaken = asyncio.Event()
        """It may send messages on this connection."""

    def skipped(self) -> int | None:
        """The frame whose answer should have come, where another's has. None: nothing under way has such an answer."""
        client: Any = self._client
        names = {name for frame in client._under_way for name, _ in client._app_envs[frame]}
        return client._under_way[0] if self.answer[0] in names else None

    def again(self) -> bytes:
        super().again()
        self._answers, self._greeting = Answers(), len(GREETING)
        self.shaken.clear()
        return GREETING + READY

    def wired(self, data: bytes) -> bytes:
        """Messages as they are on the wire."""
        parts, size = (
            split(data if self._asks else unasking(data)),
            MESSAGE_FRAMES if self._asks else MESSAGE_FRAMES - 1,
        )
        messages = [parts[at : at + size] for at in range(0, len(parts), size)]
        return b"".join(message(each if self._told else each[:-1]) for each in messages)

    def _framed(self, documents: list[bytes], middle: int, broken: int) -> bytes:
        self._client._broken = middle if broken else None
        return self.wired(super()._framed(documents, middle, broken))

    def messages(self, data: bytes) -> list[list[bytes]]:
        """What the receiver's next bytes say."""
        skipped = min(self._greeting, len(data))
        self._greeting -= skipped
        found = self._answers.receive(data[skipped:])
        if self._answers.ready:
            self.shaken.set()
        return found

    def receive(self, data: bytes) -> list[Answer]:
        found = []
        for answer in self.messages(data):
            self.answer = answer
            found += super().receive(joined(answer))
        return found


WHOLE = int(EPOCH) * 10**9
"""A whole millisecond."""
INSTANT = WHOLE + 1
ZEROS = 200 << 10
"""Bytes that a bomb grows to: below the small limit, so that it is not refused before it has grown."""


def speaker(client: Callable[[Compression | None], Client], compresses: bool) -> Callable[[], Speaker]:
    return lambda: Speaker(client, compresses)


def bombs(client: type[Client]) -> Callable[[int], bytes]:
    """Frames that inflate to so many bytes, and half as many again at most."""

    @lru_cache
    def bomb(size: int) -> bytes:
        return client().bomb(size)

    return bomb


@dataclass(frozen=True)
class Spoken:
    """One protocol."""

    protocol: Protocol[Any]
    dialect: Dialect
    speaker: Callable[[], Speaker]
    bomb: Callable[[int], bytes]
    own: dict[str, Any] = field(default_factory=dict)
    hashing: Callable[[], Speaker] | None = None
    """A client that names frames by their content."""

    others: tuple[Callable[[], Speaker], ...] = ()
    """Clients of other versions and forms."""

    frames_expire: bool = True
    """A client's frames are given up at KAFKA__ACK_DEADLINE, and not held until they are stored."""

    messages: bool = False
    """Whole messages come, by applications that keep their order: the end of a client means nothing to what it has sent, and
    who is not answered in time is not answered at all, and sends again on another connection.
    """


def stream(protocol: Protocol[Any], dialect: Dialect, client: type[Client], compresses: bool, **more: Any) -> Spoken:
    """A protocol whose clients send frames over TCP."""
    return Spoken(protocol, dialect, speaker(client, compresses), bombs(client), **more)


def unadapted(protocol: Protocol[Any]) -> Spoken:
    """A protocol that is installed and not named here: its own client says all."""
    client: type[Client] = resolve_name(protocol.client)
    return stream(protocol, InstalledDialect(protocol, client), client, False)


STREAMS: dict[str, Spoken] = {
    "forward": stream(
        forward.PROTOCOL,
        ForwardDialect(),
        ForwardClient,
        False,
        hashing=hashing,
        own={"forward": {"heartbeat": False}},
    ),
    "lumberjack": stream(
        lumberjack.PROTOCOL,
        Lumber(),
        LumberjackClient,
        True,
        others=(speaker(Forwarder, True), lambda: Speaker(lambda _: LumberjackClient(Compression("none")), True)),
    ),
    "courier": stream(courier.PROTOCOL, CourierDialect(), Courier, True),
}

SEGMENT = replace(
    STREAMS["forward"],
    protocol=segment.PROTOCOL,
    own={"segment": {"tail_wait": 2.0, "checkpoint_records": 40}},
    frames_expire=False,
)
"""Its clients are those of `segments.py`: none speaks by `speaker`."""

LOGJAM = replace(STREAMS["forward"], protocol=logjam.PROTOCOL, own={}, frames_expire=False)
"""Its clients are the devices of `devices.py`: none speaks by `speaker`."""

PRODUCERS = Spoken(
    logjam.PROTOCOL,
    LogjamDialect(),
    ZmtpSpeaker,
    lambda size: ZmtpSpeaker().wired(LogjamClient(Compression("zlib")).bomb(size)),
    messages=True,
)

PROTOCOLS: dict[str, Spoken] = {**STREAMS, "segment": SEGMENT, "logjam": LOGJAM, "producers": PRODUCERS}
PROTOCOLS |= {each.name: unadapted(each) for each in installed() if each.name not in PROTOCOLS and each.client}
