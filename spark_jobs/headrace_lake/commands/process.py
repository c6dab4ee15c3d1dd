"""The process of a command: its settings, log and signals, and what it does between the start of Spark and the exit status."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Final

from headrace_common.operations.log import Log
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
    return exit_status("lake", LakeProcessSettings, partial(_act, arguments), root_cause)


def _act(arguments: argparse.Namespace, settings: LakeProcessSettings, log: Log) -> None:
    if settings.log.level != "debug":  # the job says why it ends; py4j adds a stack, also where it was asked to
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # what it says of a Ctrl-C
    # While Spark starts: after an exception then, its JVM would stay. It ends with this process, because its input is closed.
    for number in stops():
        signal.signal(number, lambda number, _: os._exit(128 + number))
    ACTS[arguments.command](settings, arguments, log)


def _land(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    metrics = LakeMetrics()
    health = LakeHealth(metrics)
    ops = OpsThread(settings.ops, health, metrics)
    ops.start()
    # While Spark starts nothing is under way. Without a handler, a process with the id 1 (a container's) ignores the signal.
    for number in stops():
        signal.signal(number, lambda *_: os._exit(0))
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


ACTS: Final[dict[str | None, Callable[[LakeProcessSettings, argparse.Namespace, Log], None]]] = {
    None: _land,
    "replay": _replay,
    "erase": erase.act,
}
"""What each command does; it may raise `HeadraceError`."""
