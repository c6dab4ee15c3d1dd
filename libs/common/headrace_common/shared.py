"""What the connections of a service share."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final, Protocol

from headrace_common.budget import Budget, Reader
from headrace_common.errors import ProtocolError
from headrace_common.log import Log, RateLimited
from headrace_common.metrics import ReceiverMetrics
from headrace_common.publisher import Publisher
from headrace_common.session import Peer
from headrace_common.settings import LimitSettings
from headrace_common.turns import Turns, Worker

AGE_JITTER: Final = 0.1
"""A connection's age limit varies by so much around the setting, so that clients do not all come back at once."""


class Stoppable(Protocol):
    """A connection, as the service that stops sees it."""

    def stop(self) -> None:
        """Acknowledge what is pending, then close."""

    def cut(self) -> int:
        """Close at once; how many frames were never acknowledged."""


class Member(Stoppable, Reader, Worker, Protocol):
    """A connection, as what it shares with others sees it."""


@dataclass
class Shared:
    """What the connections of a service share."""

    publisher: Publisher
    budget: Budget
    turns: Turns
    limits: LimitSettings
    metrics: ReceiverMetrics
    log: Log
    limited: RateLimited
    connections: set[Stoppable] = field(default_factory=set)
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    admitted: int = 0
    """Clients that were let in and are not gone, with those whose TLS handshake is under way."""

    def age(self) -> float:
        """The age at which a new connection is to close; 0: never."""
        return self.limits.connection_age * random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER)  # noqa: S311  (no secret)

    def fault(self, peer: Peer, error: ProtocolError) -> None:
        """A peer has broken its protocol: one count, one line."""
        if error.limit is not None:
            self.metrics.limit_hits.labels(error.limit).inc()
        self.limited.warning(
            "protocol error",
            peer=f"{peer.address}:{peer.port}",
            problem=str(error),
            limit=error.limit,
            offset=error.offset,
            bytes=error.sample.hex(),
        )

    def left(self, connection: Member, partition: int, peer: Peer, why: str) -> None:
        """A connection has closed, and looks at nothing any more; once for each."""
        self.budget.forget(connection)
        self.turns.withdraw(connection)
        self.publisher.leave(partition)
        self.connections.discard(connection)
        self.metrics.connections_closed.labels(why).inc()
        self.log.debug("connection closed", peer=peer.address, why=why)
        self.admitted -= 1
        if not self.connections:
            self.empty.set()
