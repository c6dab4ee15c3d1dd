"""The client's side of each protocol: its client, which goes on with its next connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import headrace_courier.protocol
import headrace_forward.protocol
import headrace_lumberjack.protocol
import headrace_segment.protocol
from headrace_common.operations.settings import ServiceSettings
from headrace_common.session.client import Answer, Client, Compression
from headrace_courier.client import CourierClient
from headrace_courier.settings import CourierSettings
from headrace_forward.client import ForwardClient
from headrace_forward.settings import ForwardSettings
from headrace_logjam.settings import LogjamSettings
from headrace_lumberjack.client import LumberjackClient
from headrace_lumberjack.settings import LumberjackSettings
from headrace_segment.settings import SegmentSettings

from tests.contract.courier import CourierDialect
from tests.contract.dialect import Dialect, Values
from tests.contract.forward import ForwardDialect
from tests.contract.lumberjack import LumberjackDialect
from tests.simulation import zeromq


class Speaker:
    """A client over several connections; `compresses`: its sound frames are compressed, which the receiver inflates."""

    def __init__(self, client: Callable[[Compression | None], Client], compresses: bool) -> None:
        self._make = client
        self._client = client(None)
        self._compresses = compresses
        self._fresh: set[int] = set()  # made on this connection, and not yet sent

    @property
    def compresses(self) -> bool:
        return self._compresses

    @compresses.setter
    def compresses(self, wanted: bool) -> None:
        if wanted and not self._compresses:
            self._client = self._make(Compression("gzip"))
        self._compresses = wanted

    def frame(self, values: Values) -> bytes:
        self._fresh.add(self._client.made)
        return self._client.frame(values)

    def faulty(self, values: Values) -> bytes:
        self._fresh.add(self._client.made)
        return self._client.faulty(values)

    def again(self) -> bytes:
        """A new connection. Returns what it begins with."""
        self._fresh.clear()
        return self._client.again()

    def sent(self, number: int) -> None:
        """Frame `number` is being sent on this connection."""
        if number in self._fresh:
            self._fresh.discard(number)
        else:
            self._client.repeat(number)

    def receive(self, data: bytes) -> list[int]:
        return [each.frame for each in self._client.receive(data) if isinstance(each, Answer) and each.whole]


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
        speaker(ForwardClient, False),
        bombs(ForwardClient),
        {"forward": {"heartbeat": False}},
    ),
    "lumberjack": Spoken(
        "lumberjack",
        headrace_lumberjack.protocol,
        LumberjackSettings,
        LumberjackDialect(),
        speaker(LumberjackClient, True),
        bombs(LumberjackClient),
        {},
    ),
    "courier": Spoken(
        "courier",
        headrace_courier.protocol,
        CourierSettings,
        CourierDialect(),
        speaker(CourierClient, True),
        bombs(CourierClient),
        {},
    ),
}

SEGMENT = Spoken(
    "segment",
    headrace_segment.protocol,
    SegmentSettings,
    ForwardDialect(),
    speaker(ForwardClient, False),
    bombs(ForwardClient),
    {"segment": {"tail_wait": 2.0, "snapshot_records": 40}},
    frames_expire=False,
)
"""Its clients are those of `segments.py`: none speaks by `speaker`."""

LOGJAM = Spoken(
    "logjam",
    zeromq,
    LogjamSettings,
    ForwardDialect(),
    speaker(ForwardClient, False),
    bombs(ForwardClient),
    {},
    frames_expire=False,
)
"""Its clients are the devices of `devices.py`: none speaks by `speaker`."""

PROTOCOLS: dict[str, Spoken] = {**STREAMS, "segment": SEGMENT, "logjam": LOGJAM}
