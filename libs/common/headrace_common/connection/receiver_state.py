"""State that the connections of a service share."""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final

from headrace_common.connection.places import Places
from headrace_common.fairness.budget import Budget
from headrace_common.fairness.scheduler import TOLD, Scheduler
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import LimitSettings
from headrace_common.publishing.publisher import Publisher
from headrace_common.session.interface import NO_BACKEND, Backend, Peer

CONNECTIONS: Final = "LIMITS__CONNECTIONS"

AGE_JITTER: Final = 0.1
"""A connection's age limit varies by this part around the setting, so that clients do not all reconnect at once."""

TLS_HELLO: Final = b"\x16\x03"
"""How a TLS client begins: a handshake record of version 3 (RFC 8446, 5.1). No protocol here begins so."""


class Stoppable(ABC):
    """A connection, as a stopping service sees it."""

    @abstractmethod
    def stop(self) -> None:
        """Acknowledges the pending frames, then closes."""

    @abstractmethod
    def cut(self) -> int:
        """Closes at once. Returns how many frames stay unacknowledged."""


@dataclass(kw_only=True)
class ReceiverState:
    """State that the connections of a service share."""

    publisher: Publisher
    budget: Budget
    scheduler: Scheduler
    limits: LimitSettings
    metrics: ReceiverMetrics
    log: Log
    backend: Backend = NO_BACKEND
    connections: set[Stoppable] = field(default_factory=set)
    empty: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.places = Places(self.limits.connections)
        """Of the clients that were admitted and are still connected, including those in their TLS handshake."""

    def age(self) -> float:
        """Returns the age in seconds at which a new connection closes; 0: never."""
        return self.limits.connection_age * random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)  # noqa: S311  (no secret)

    def fault(self, peer: Peer, error: ProtocolError) -> None:
        """Counts and logs a peer's protocol error."""
        if error.limit is not None:
            self.metrics.limit_hits.labels(error.limit).inc()
        problem = str(error)
        if error.offset == 0 and error.sample.startswith(TLS_HELLO):
            problem = f"a TLS client on a port without TLS ({problem})"
        self.log.warning(
            "protocol error",
            peer=f"{peer.address}:{peer.port}",
            problem=problem,
            limit=error.limit,
            offset=error.offset,
            bytes=error.sample.hex(),
        )

    def left(self, connection: Stoppable, peer: Peer, why: str, *, counted: bool = True) -> None:
        """Forgets a connection that has closed. Call it once for each. `counted`: it was counted as opened, or had a bug."""
        self.connections.discard(connection)
        if counted:
            self.metrics.connections_closed.labels(why).inc()
        self.log.debug("connection closed", peer=peer.address, why=why)
        if not self.connections:
            self.empty.set()

    async def drain(self, seconds: float) -> None:
        """Lets every connection acknowledge its pending frames and close. Cuts the rest after `seconds` and logs it."""
        if self.connections:
            self.empty.clear()
            for number, connection in enumerate(list(self.connections)):
                if number % TOLD == 0:
                    await self.scheduler.breathe()
                connection.stop()
            if self.connections:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.empty.wait(), seconds)
        left = list(self.connections)
        frames = sum(connection.cut() for connection in left)
        if left:
            self.log.warning("connections cut", connections=len(left), frames_not_acknowledged=frames)
