"""The process of a command: its settings, log and signals, and what it does between the start of Spark and the exit status."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC
from types import FrameType
from typing import Final

from headrace_common.operations import log as logs
from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.log import Log
from headrace_common.operations.settings import load
from headrace_common.operations.tasks import stops

from headrace_lake.commands import erase
from headrace_lake.commands.replay import go_back
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.job import Job
from headrace_lake.kafka.source import Brokers
from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.engine import remarks, running
from headrace_lake.spark.halt import exit_status
from headrace_lake.tables.on_spark import Tables
from headrace_lake.upkeep.metrics import LakeMetrics
from headrace_lake.upkeep.operations import LakeHealth, OpsThread


def run(arguments: argparse.Namespace) -> int:
    """Runs the command that the arguments name; returns the exit status."""
    try:
        settings = load(LakeProcessSettings)
    except ConfigError as error:
        print(f"headrace_lake: {error}", file=sys.stderr)
        return EXIT_CONFIG
    log = logs.configure(settings.log, "lake")
    if settings.log.level != "debug":  # the job says why it ends; py4j adds a stack, also where it was asked to
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # what it says of a Ctrl-C
    for number in stops():  # while Spark starts: after an exception then, its JVM would stay
        signal.signal(number, _end)
    return exit_status(lambda: ACTS[arguments.command](settings, arguments, log), log, root_cause)


def _land(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    metrics = LakeMetrics()
    health = LakeHealth(metrics)
    ops = OpsThread(settings.ops, health, metrics)
    ops.start()
    # While Spark starts nothing is under way. Without a handler, a process with the id 1 (a container's) ignores the signal.
    for number in stops():
        signal.signal(number, _leave)
    log.info("starting", ops_port=ops.port)
    with running(settings.lake, settings.log, once=arguments.once) as spark:
        for remark in remarks(spark, location(settings.lake.path)):
            log.warning("remark", what=remark)
        job = Job(spark, settings, once=arguments.once, log=log, health=health, accept_loss=arguments.accept_loss)
        for number in stops():
            signal.signal(number, job.stop)
        job.run()


def _replay(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    with running(settings.lake, settings.log, once=True) as spark:
        tables, brokers = Tables(spark, location(settings.lake.path)), Brokers(spark, settings.kafka)
        names = (settings.kafka.events_topic, settings.kafka.quarantine_topic)
        since = arguments.from_time
        go_back(tables, brokers, names, since if since.tzinfo else since.replace(tzinfo=UTC), log)
        brokers.close()
        job = Job(spark, settings, once=True, log=log, health=LakeHealth(LakeMetrics()))
        for number in stops():
            signal.signal(number, job.stop)
        job.run()


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process at once, as the signal does by itself, also where its id is 1; its JVM ends with it, as below."""
    os._exit(128 + number)


def _leave(number: int, frame: FrameType | None) -> None:
    """Ends the process at once, whatever it does; its JVM ends with it, because its input is closed."""
    os._exit(0)


ACTS: Final[dict[str | None, Callable[[LakeProcessSettings, argparse.Namespace, Log], None]]] = {
    None: _land,
    "replay": _replay,
    "erase": erase.act,
}
"""What each command does; it may raise `HeadraceError`."""
