"""What is left of a conversation when everything is said: it holds nothing, so that what waits for Kafka keeps no buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace_common.session import Frame, Session, Ticket


class _Ended:
    """As `Session`."""

    def receive(self, data: bytes, now_ms: int) -> None:
        """Nothing is heard any more."""

    def busy(self) -> bool:
        """It is not."""
        return False

    def frames(self) -> Iterator[Frame]:
        """There are none."""
        return iter(())

    def settle(self, ticket: Ticket, stored: int, whole: bool) -> None:
        """Nobody is told."""

    def abandon(self, ticket: Ticket) -> None:
        """Nobody is told."""

    def eof(self) -> None:
        """It knows."""

    def deadline(self) -> float | None:
        """Nothing falls due."""
        return None

    def tick(self, now: float) -> None:
        """Nothing falls due."""

    def outgoing(self) -> bytes:
        """It has nothing to say."""
        return b""

    def farewell(self) -> bytes:
        """It was said."""
        return b""

    def idle(self) -> bool:
        """Nothing is pending."""
        return True

    def held(self) -> int:
        """Nothing."""
        return 0

    def unacknowledgeable(self) -> bool:
        """Nothing is on its way that would be heard."""
        return False


ENDED: Final[Session] = _Ended()
