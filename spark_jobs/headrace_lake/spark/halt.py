"""Why the job stops: one sentence for the operator, never a stack trace."""

from __future__ import annotations

from headrace_common.operations.errors import HeadraceError


class HaltError(HeadraceError):
    """The job must not continue. The message says why, and what to do."""


class SupersededError(HaltError):
    """Another job has taken over the tables: nothing that this one writes would count any more."""


class GapError(HaltError):
    """Kafka no longer holds records that have not landed. The message names the offsets and the command to go on."""


class StoppingError(HeadraceError):
    """The job was asked to stop just before a batch: nothing of it was landed."""


class KafkaAwayError(HeadraceError):
    """Kafka does not answer, has no address, or its client no token. The job may wait for it."""
