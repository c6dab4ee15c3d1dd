"""The process of the mirror: its settings, log and signals."""

from __future__ import annotations

import signal
from functools import partial

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import Log
from headrace_common.operations.tasks import stops
from headrace_lake.spark.halt import exit_status
from headrace_lake.upkeep.operations import OpsThread

from headrace_mirror.settings import MirrorProcessSettings


def run(*, once: bool) -> int:
    """Runs the mirror; returns the exit status."""
    return exit_status(
        "mirror", MirrorProcessSettings, partial(_run, once), lambda error: f"{type(error).__name__}: {error}"
    )


def _run(once: bool, settings: MirrorProcessSettings, log: Log) -> None:
    if not settings.mirror.catalog:
        raise ConfigError("MIRROR__CATALOG names no catalog")
    try:
        from headrace_mirror.follower import Follower
        from headrace_mirror.metrics import MirrorMetrics
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install './spark_jobs[iceberg]'") from error
    metrics = MirrorMetrics()
    follower = Follower(settings.mirror, metrics, log)
    if once:
        follower.once()
        return
    for number in stops():
        signal.signal(number, follower.stop)
    OpsThread(settings.ops, follower, metrics).start()
    follower.run()
