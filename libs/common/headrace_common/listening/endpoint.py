"""An address that a service listens on."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Endpoint(ABC):
    """One address. `bind` takes it early, so that a wrong setting shows at once; `start` accepts once Kafka answers."""

    name: str
    """The address's name in the log line `ready`."""

    @abstractmethod
    async def bind(self) -> str:
        """Takes the address and returns it. Raises `ConfigError` if it is in use or not an address of this machine."""

    @abstractmethod
    def start(self) -> None:
        """Accepts clients. Raises `ConfigError` if another process listens there by now."""

    @abstractmethod
    async def close(self) -> None:
        """Stops accepting and releases the address, also if it was never bound. Bounded in time."""
