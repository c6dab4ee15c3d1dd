"""The errors that may cross a layer. They carry a policy, so that callers branch on what to do, not on types."""

from __future__ import annotations

from enum import Enum


class HeadraceError(Exception):
    """Base of every error that Headrace raises on purpose."""


class ProtocolError(HeadraceError):
    """The peer broke its protocol, so its byte stream can no longer be trusted: nothing more is read from it.

    `limit`: the setting that the peer exceeded, if any (for example ``LIMITS__FRAME_BYTES``); it is counted and logged.
    `offset`: where the faulty frame begins, in bytes from the connection's start; `sample`: the first bytes at fault.
    """

    def __init__(
        self, message: str, *, limit: str | None = None, offset: int | None = None, sample: bytes = b""
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.offset = offset
        self.sample = sample


class DeliveryPolicy(Enum):
    """How to proceed with records that Kafka did not store."""

    RETRY = "the same records may be sent again until their deadline"
    REFUSED = "Kafka refuses us, our clock or the topic; the records are not to blame"
    POISON = "Kafka refuses the records themselves; sending them again can never succeed"


class DeliveryError(HeadraceError):
    """Kafka did not confirm a batch. `policy` says what to do about it, `in_doubt` whether Kafka may have stored it."""

    def __init__(self, message: str, policy: DeliveryPolicy, *, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.policy = policy
        self.in_doubt = in_doubt


class ConfigError(HeadraceError):
    """A setting is unknown or malformed, or settings contradict each other. The process says so and exits with 78."""


class CommandError(HeadraceError):
    """A command cannot continue. The message is one sentence for the user; `status` is the exit status of the process."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


EXIT_CONFIG = 78
"""Exit status for a `ConfigError` (EX_CONFIG of sysexits.h)."""
EXIT_UNWRITTEN = 74
"""The command cannot write its output, so its finding is not known (EX_IOERR of sysexits.h)."""
EXIT_INTERRUPTED = 130
"""A Ctrl-C ended the command: 128 + SIGINT, as shells count."""
