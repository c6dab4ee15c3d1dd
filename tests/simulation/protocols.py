"""The client's side of each protocol: the contract suite's conversations, which a client goes on with on its next connection."""

from __future__ import annotations

import gzip
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol

import headrace_courier.protocol
import headrace_forward.protocol
import headrace_lumberjack.protocol
import headrace_segment.protocol
import msgpack
import orjson
from headrace_common.operations.settings import ServiceSettings
from headrace_courier.replies import Replies as CourierReplies
from headrace_courier.settings import CourierSettings
from headrace_courier.wire import identity, jdat
from headrace_forward.settings import ForwardSettings
from headrace_forward.wire import EventTime, encode
from headrace_forward.wire import Replies as ForwardReplies
from headrace_lumberjack.settings import LumberjackSettings
from headrace_lumberjack.wire import Replies as LumberjackReplies
from headrace_lumberjack.wire import compressed, json_frame, window
from headrace_segment.settings import SegmentSettings

from tests.contract.courier import CourierConversation, CourierDialect
from tests.contract.dialect import Conversation, Dialect, Values
from tests.contract.forward import SECONDS, TAG, ForwardConversation, ForwardDialect
from tests.contract.lumberjack import LumberjackConversation, LumberjackDialect


class Speaker(Conversation, Protocol):
    """A conversation over several connections."""

    compresses: bool

    def again(self) -> bytes:
        """A new connection. Returns what it begins with."""

    def sent(self, number: int) -> None:
        """Frame `number` is being sent on this connection."""


class ForwardSpeaker(ForwardConversation):
    compresses = False
    """Its sound frames are CompressedPackedForward, which the receiver inflates."""

    def frame(self, values: Values) -> bytes:
        if not self.compresses:
            return super().frame(values)
        entries = [(EventTime(SECONDS, 1 + n), value) for n, value in enumerate(values)]
        return encode(TAG, entries, mode="CompressedPackedForward", chunk=self.chunk())

    def again(self) -> bytes:
        self._replies = ForwardReplies()
        return b""

    def sent(self, number: int) -> None:
        pass


class LumberjackSpeaker(LumberjackConversation):
    compresses = True

    def __init__(self) -> None:
        super().__init__()
        self._under_way: deque[int] = deque()

    def again(self) -> bytes:
        self._replies = LumberjackReplies()
        self._under_way.clear()
        return b""

    def sent(self, number: int) -> None:
        self._under_way.append(number)

    def receive(self, data: bytes) -> list[int]:
        found = []
        for number in self._replies.receive(data):
            if not self._under_way:
                assert number == 0, f"{number} is acknowledged, and nothing was sent"
                continue
            size = self._windows[self._under_way[0]]
            assert number <= size, "more is acknowledged than was sent"
            if number == size:
                found.append(self._under_way.popleft())
        return found


class CourierSpeaker(CourierConversation):
    compresses = True

    def again(self) -> bytes:
        self._replies = CourierReplies()
        self._said.clear()
        return identity(b"HELO", "2.12.0", b"LCOR") if self._payloads else b""

    def sent(self, number: int) -> None:
        pass


ZEROS = 200 << 10
"""Bytes that a bomb grows to: below the small limit, so that it is not refused before it has grown."""


@lru_cache
def forward_bomb(size: int) -> bytes:
    entries = msgpack.packb([SECONDS, {"zeros": "0" * 20_000}]) * (size // 20_000)
    return msgpack.packb([TAG, gzip.compress(entries, 9, mtime=0), {"chunk": "bomb", "compressed": "gzip"}])


@lru_cache
def lumberjack_bomb(size: int) -> bytes:
    count = size // 20_000
    event = orjson.dumps({"zeros": "0" * 20_000})
    return window(count) + compressed(b"".join(json_frame(index + 1, event) for index in range(count)), 9)


@lru_cache
def courier_bomb(size: int) -> bytes:
    return jdat(bytes(16), [orjson.dumps({"zeros": "0" * 20_000})] * (size // 20_000), level=9)


@dataclass(frozen=True)
class Spoken:
    """One protocol."""

    wire: str
    module: ModuleType
    settings: type[ServiceSettings]
    dialect: Dialect
    speaker: Callable[[], Speaker]
    bomb: Callable[[int], bytes]
    own: dict[str, Any]
    frames_expire: bool = True
    """A client's frames are given up at KAFKA__ACK_DEADLINE, and not held until they are stored."""


STREAMS: dict[str, Spoken] = {
    "forward": Spoken(
        "forward",
        headrace_forward.protocol,
        ForwardSettings,
        ForwardDialect(),
        ForwardSpeaker,
        forward_bomb,
        {"forward": {"heartbeat": False}},
    ),
    "lumberjack": Spoken(
        "lumberjack",
        headrace_lumberjack.protocol,
        LumberjackSettings,
        LumberjackDialect(),
        LumberjackSpeaker,
        lumberjack_bomb,
        {},
    ),
    "courier": Spoken(
        "courier",
        headrace_courier.protocol,
        CourierSettings,
        CourierDialect(),
        CourierSpeaker,
        courier_bomb,
        {},
    ),
}

SEGMENT = Spoken(
    "segment",
    headrace_segment.protocol,
    SegmentSettings,
    ForwardDialect(),
    ForwardSpeaker,
    forward_bomb,
    {"segment": {"tail_wait": 2.0, "snapshot_records": 40}},
    frames_expire=False,
)
"""Its clients are those of `segments.py`: none speaks by `speaker`."""

PROTOCOLS: dict[str, Spoken] = {**STREAMS, "segment": SEGMENT}
