"""The client's side of each protocol: its client, which goes on with its next connection.

Syslog over TCP and UDP has none: it answers nothing, so nothing that it sends must be stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any

import headrace_courier.protocol as courier
import headrace_forward.protocol as forward
import headrace_logjam.protocol as logjam
import headrace_lumberjack.protocol as lumberjack
import headrace_otlp.protocol as otlp
import headrace_segment.protocol as segment
import headrace_syslog.protocol as syslog
import msgpack
import orjson
from headrace_common.operations.errors import ProtocolError
from headrace_common.protocol import Protocol, installed
from headrace_common.session.client import STREAM, Answer, Client, Remark
from headrace_courier.client import CourierClient
from headrace_courier.wire import jdat
from headrace_forward.client import ForwardClient
from headrace_logjam.client import MESSAGE_FRAMES, LogjamClient
from headrace_logjam.wire import PING, PONG, UNTOLD, joined, split
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.wire import V1
from headrace_otlp.client import OtlpClient
from headrace_otlp.logs import wrapped
from headrace_segment.wire import original, today
from headrace_syslog.client import RelpClient
from headrace_syslog.wire.relp import SYSLOG, RelpFrame

from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect
from tests.contract.forward import ForwardDialect
from tests.contract.installed import InstalledDialect
from tests.contract.logjam import LogjamDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.contract.otlp import JsonOtlpClient, OtlpDialect
from tests.contract.relp import RelpDialect
from tests.contract.segment import SegmentDialect, Writer, WriterOfToday
from tests.simulation.libzmq import taken, wired
from tests.simulation.loop import EPOCH, replaced


class Forwarder(LumberjackClient):
    """A client of version 1: any six bytes would acknowledge its oldest window, as with logstash-forwarder."""

    def __init__(self) -> None:
        super().__init__(version=V1)

    def broken(self, _: Mapping[str, Any]) -> bytes:
        return b""

    def receive(self, data: bytes) -> list[Answer | Remark]:
        found = super().receive(data)
        if not all(isinstance(each, Answer) and each.whole for each in found):
            raise ProtocolError(f"not one acknowledgement for each window: {found}")
        return found


class Lumber(LumberjackDialect):
    """Events of version 1 have a whole document in their line."""

    def value(self, stored: dict[str, Any]) -> dict[str, Any]:
        return super().value(orjson.loads(stored["line"]) if "line" in stored else stored)


class Courier(CourierClient):
    """It goes on behind an acknowledged part of a payload, with the rest under the same nonce, as log-courier does."""

    def rest(self, number: int, documents: list[bytes]) -> bytes:
        """Frame `number` without its first events, which were acknowledged: what a real client sends again of it."""
        nonce = next(key for key, frame in self._keys.items() if frame == number)
        assert isinstance(nonce, bytes)
        self._sizes[number] = len(documents)
        self._said.pop(nonce, None)
        return jdat(nonce, documents)


class Relp(RelpClient):
    """It goes on behind the messages of a frame that were answered."""

    def rest(self, number: int, documents: list[bytes]) -> bytes:
        """Frame `number` without its first events, which were answered, under the numbers that they have."""
        self._firsts[number] += self._sizes[number] - len(documents)
        self._sizes[number] = len(documents)
        frames = (RelpFrame(at, SYSLOG, each) for at, each in enumerate(documents, self._firsts[number]))
        return b"".join(frame.encode() for frame in frames)


class Unasking(ForwardClient):
    """Its messages have no chunk."""

    def payload(self, documents: Sequence[bytes]) -> bytes:
        return bytes(msgpack.packb([STREAM, b"".join(documents)]))


class Hashing(ForwardClient):
    """It names a chunk by its content, as Fluent Bit does: two of them may name theirs alike. All its events have one time."""

    def document(self, event: Mapping[str, Any]) -> bytes:
        with replaced((time, "time_ns", lambda: WHOLE)):
            return super().document(event)

    def packed(self, entries: bytes, size: int, **option: str) -> bytes:
        digest = hashlib.sha512(entries).digest()
        with replaced((os, "urandom", lambda length: digest[:length])):
            return super().packed(entries, size, **option)


class Producing(LogjamClient):
    """A producer of Logjam behind ZeroMQ. `app_envs`: see `LogjamClient`; `asks`: it waits for answers; `told`: its messages have
    meta; `identified`: its events have an id, so no two of them are one.
    """

    def __init__(
        self, compresses: bool, app_envs: int = 1, *, asks: bool = True, told: bool = True, identified: bool = True
    ) -> None:
        super().__init__("zlib" if compresses else "none", app_envs)
        self._asks, self._told, self._identified = asks, told, identified
        self._data = bytearray()
        self.answer: list[bytes] = []
        """The last."""
        self.shaken = asyncio.Event()
        """It may send messages on this connection."""

    def skipped(self) -> int | None:
        """The frame whose answer should have come, where another's has. None: nothing under way has such an answer."""
        names = {name for frame in self._under_way for name, _ in self._app_envs[frame]}
        return self._under_way[0] if self.answer[0] in names else None

    def again(self) -> bytes:
        self._data.clear()
        self.shaken.clear()
        ping = wired((b"", PING, b"", b"{}", UNTOLD)) if self._asks else b""
        return super().again() + ping

    def document(self, event: Mapping[str, Any]) -> bytes:
        return super().document(event) if self._identified else orjson.dumps(dict(event))

    def payload(self, documents: Sequence[bytes]) -> bytes:
        """Messages as they are on the wire."""
        data = super().payload(documents)
        parts = split(data)
        messages = [parts[at + (not self._asks) : at + MESSAGE_FRAMES] for at in range(0, len(parts), MESSAGE_FRAMES)]
        return b"".join(wired(each if self._told else each[:-1]) for each in messages)

    def messages(self, data: bytes) -> list[list[bytes]]:
        """What the receiver's next bytes say."""
        self._data += data
        found = []
        while (frames := taken(self._data)) is not None:
            self.shaken.set()
            found += [frames] if frames else []
        return found

    def receive(self, data: bytes) -> list[Answer | Remark]:
        found = []
        for answer in self.messages(data):
            if answer[0] == PING:
                if answer[1:2] != [PONG]:
                    raise ProtocolError(f"{answer} in answer to a ping")
                continue
            self.answer = answer
            found += super().receive(joined(answer))
        return found


WRITTEN = "written-0", "written-1"


class Appender(Writer):
    """Appends to one of two segments, as many others. Its broken event is larger than one may be there."""

    def __init__(self) -> None:
        super().__init__()
        self.segment = WRITTEN[self.writer[0] % len(WRITTEN)]
        self._heard = 0  # the highest level

    def broken(self, event: Mapping[str, Any]) -> bytes:
        return self.document(event) + bytes(1024)

    def again(self) -> bytes:
        greeting, receive = super().again(), self._replies.receive
        setattr(self._replies, "receive", lambda data: map(self._hears, receive(data)))  # noqa: B010
        return greeting

    def _hears(self, reply: Any) -> Any:
        if isinstance(reply, today.AppendSetup | original.AppendSetup) and max(0, reply.level) < self._heard:
            raise ProtocolError(f"its level is {reply.level}, and was {self._heard} before")
        self._heard = max(self._heard, getattr(reply, "level", 0))
        return reply


class AppenderOfToday(Appender, WriterOfToday):
    """The same in today's dialect: it goes on behind the level that it hears on a new connection."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledgement: Any = today.DataAppended, today.AppendSetup
        self.shaken = asyncio.Event()
        """It has heard that level."""

    def again(self) -> bytes:
        self.shaken.clear()
        return super().again()

    def _hears(self, reply: Any) -> Any:
        if isinstance(reply, today.AppendSetup):
            self.shaken.set()
        return super()._hears(reply)


WHOLE = int(EPOCH) * 10**9
"""A whole millisecond."""
INSTANT = WHOLE + 1
ZEROS = 200 << 10
"""Bytes that a bomb grows to: below the small limit, so that it is not refused before it has grown."""


@dataclass(frozen=True)
class Spoken:
    """One protocol."""

    protocol: Protocol[Any]
    dialect: Dialect
    client: Callable[[bool], Client]
    """Makes a client, whose frames are compressed where the protocol leaves that to it."""
    own: dict[str, Any] = field(default_factory=dict)
    hashing: Callable[[bool], Client] | None = None
    """Makes one that names frames by their content."""

    others: tuple[Callable[[], Client], ...] = ()
    """Make clients of other versions and forms."""

    quarantined: Callable[[Any, bytes], bytes] = lambda _, broken: broken
    """What quarantine keeps of a client's broken event."""

    frames_expire: bool = True
    """A client's frames are given up at KAFKA__ACK_DEADLINE, and not held until they are stored."""

    messages: bool = False
    """Whole messages come, by applications that keep their order: the end of a client means nothing to what it has sent, and
    who is not answered in time is not answered at all, and sends again on another connection.
    """


@lru_cache
def bomb(protocol: str, size: int) -> bytes:
    """A frame that inflates to so many bytes, and half as many again at most. It is the same in each run."""
    with replaced((os, "urandom", random.Random(size).randbytes)):
        return PROTOCOLS[protocol].client(True).bomb(size)


def unadapted(protocol: Protocol[Any]) -> Spoken:
    """A protocol that is installed and not named here: its own client says all."""
    client: type[Client] = resolve_name(protocol.client)
    return Spoken(protocol, InstalledDialect(protocol, client), lambda _: client())


STREAMS: dict[str, Spoken] = {
    "forward": Spoken(
        forward.PROTOCOL,
        ForwardDialect(),
        lambda compresses: ForwardClient("gzip" if compresses else None),
        hashing=lambda compresses: Hashing("gzip" if compresses else None),
        own={"forward": {"heartbeat": False}},
    ),
    "lumberjack": Spoken(
        lumberjack.PROTOCOL, Lumber(), lambda _: LumberjackClient(), others=(Forwarder, lambda: LumberjackClient(""))
    ),
    "courier": Spoken(courier.PROTOCOL, CourierDialect(), lambda _: Courier()),
    "relp": Spoken(syslog.RELP, RelpDialect(), lambda _: Relp()),
    "otlp": Spoken(
        otlp.PROTOCOL,
        OtlpDialect(),
        lambda compresses: OtlpClient("gzip" if compresses else None),
        others=(JsonOtlpClient,),
        quarantined=lambda client, broken: wrapped(client.about, b"", [broken]),
    ),
}

SEGMENT = Spoken(
    segment.PROTOCOL, SegmentDialect(), lambda _: Appender(), others=(AppenderOfToday,), frames_expire=False
)

LOGJAM = replace(STREAMS["forward"], protocol=logjam.PROTOCOL, own={}, frames_expire=False)
"""Its clients are the devices of `devices.py`: none is made by `client`."""

PRODUCERS = Spoken(logjam.PROTOCOL, LogjamDialect(), Producing, messages=True)

PROTOCOLS: dict[str, Spoken] = {**STREAMS, "segment": SEGMENT, "logjam": LOGJAM, "producers": PRODUCERS}
PROTOCOLS |= {each.name: unadapted(each) for each in installed() if each.name not in PROTOCOLS and each.client}
