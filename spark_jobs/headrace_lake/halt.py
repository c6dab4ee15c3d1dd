"""Why the job stops: one sentence for the operator, never a stack."""

from __future__ import annotations

from headrace_common.errors import HeadraceError


class HaltError(HeadraceError):
    """The job must not go on. The message says why, and what to do."""


class SupersededError(HaltError):
    """Another job has taken the tables over: what this one writes from now on would not count."""


class GapError(HaltError):
    """Kafka no longer holds what was not landed yet. The message names the offsets and the command to go on."""


class StoppingError(HeadraceError):
    """The job was asked to stop and a batch was about to begin: nothing of it was landed."""


class KafkaAwayError(HeadraceError):
    """Kafka does not answer. Worth waiting for."""
