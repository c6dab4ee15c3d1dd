"""The parts of a service: its listeners and its own consumers, state and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from headrace_common.connection.receiver_state import ReceiverState
from headrace_common.listening.endpoint import Endpoint
from headrace_common.operations.log import Log
from headrace_common.operations.metrics import ReceiverMetrics
from headrace_common.operations.settings import ServiceSettings
from headrace_common.operations.tasks import Tasks
from headrace_common.session.interface import NO_BACKEND, Backend

S = TypeVar("S", bound=ServiceSettings)


@dataclass(frozen=True)
class Runtime(Generic[S]):
    """The context that a service's parts receive. If one of its `tasks` ends, the service stops."""

    settings: S
    receiver: ReceiverState
    metrics: ReceiverMetrics
    log: Log
    tasks: Tasks
    ready_problems: Callable[[], list[str]]
    """Why the service is not ready for clients; empty when it is."""


class OwnParts:
    """The consumers, state and tasks of one kind of service: here none."""

    async def start(self) -> None:
        """Starts after Kafka answers and the topics exist, and before any client is accepted. May wait without limit; it is
        cancelled when the service stops.

        Raises `ConfigError`: the service does not start.
        """

    async def stop(self) -> None:
        """Stops when no connection is left; the publisher still publishes. Must bound itself. Called only after `start`."""

    def ready_problems(self) -> list[str]:
        """Returns why the service is not ready, apart from Kafka. Must not block."""
        return []


@dataclass(frozen=True)
class Parts:
    """One service."""

    listeners: Sequence[Endpoint]
    own: OwnParts = field(default_factory=OwnParts)
    backend: Backend = NO_BACKEND
