"""Why the job stops: one sentence for the operator, never a stack trace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from headrace_common.operations import log as logs
from headrace_common.operations.errors import EXIT_CONFIG, EXIT_INTERRUPTED, ConfigError, HeadraceError
from headrace_common.operations.log import Log
from headrace_common.operations.settings import Settings, load

S = TypeVar("S", bound=Settings)


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


class PartitionsAddedError(HeadraceError):
    """A topic has partitions that this job has not claimed: nothing of the batch was landed. The job claims the tables again."""


def exit_status(name: str, kind: type[S], act: Callable[[S, Log], None], reason: Callable[[Exception], str]) -> int:
    """Loads the settings of the process `name`, calls `act` with them, logs why that ended, and returns the process's status.

    `reason`: what an error that is not ours says.
    """
    try:
        settings = load(kind)
    except ConfigError as error:
        print(f"headrace_{name}: {error}", file=sys.stderr)
        return EXIT_CONFIG
    log = logs.configure(settings.log, name)
    try:
        act(settings, log)
    except HeadraceError as error:
        log.error("stopped", reason=str(error))
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:  # once Spark runs it handles SIGINT
        log.warning("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:
        log.debug("failed", exc_info=error)
        log.error("stopped", reason=reason(error))
        return 1
    log.info("ended")
    return 0
