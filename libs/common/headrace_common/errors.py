"""The errors that may cross a layer. They carry policy, so that callers branch on what to do, not on types."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of every error that Headrace raises on purpose."""


class ProtocolError(HeadraceError):
    """The peer's byte stream cannot be trusted any more: the connection is closed, nothing more is acknowledged.

    `limit` names the setting (for example ``LIMITS__FRAME_BYTES``) when the peer exceeded one; it is
    counted and logged. `offset` counts bytes from the connection's start; `sample` is the first bytes at fault.
    """

    def __init__(
        self, message: str, *, limit: str | None = None, offset: int | None = None, sample: bytes = b""
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.offset = offset
        self.sample = sample


class DeliveryError(HeadraceError):
    """Kafka did not store a batch.

    `retriable`: the same records may be sent again by a fresh producer while their deadline lasts.
    `poison`: the records themselves were refused; sending them again can never succeed.
    `clock`: the broker refused our timestamps: this machine's clock is wrong, the records are not to blame.
    """

    def __init__(self, message: str, *, retriable: bool, poison: bool = False, clock: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.poison = poison
        self.clock = clock


class ConfigError(HeadraceError):
    """Settings are unknown, malformed or contradict each other. The process says so in a line and exits with 78."""


EXIT_CONFIG = 78
"""Exit status for a `ConfigError` (EX_CONFIG of sysexits.h)."""
