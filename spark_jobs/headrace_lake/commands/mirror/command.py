"""``python -m headrace_lake mirror``: Iceberg tables beside the Delta tables, of the same files. Needs no Spark."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import Log
from headrace_common.operations.tasks import stops

from headrace_lake.configuration.settings import LakeProcessSettings
from headrace_lake.upkeep.operations import OpsThread


def add(commands: Any) -> None:
    """Adds the command to the result of `add_subparsers`."""
    parser = commands.add_parser(
        "mirror",
        help="keep Iceberg tables that show the same rows",
        description="Follows the Delta tables with Iceberg tables in the catalog of LAKE__ICEBERG, which list the same files. It"
        " runs beside the job, and copies nothing.",
    )
    parser.add_argument("--config", default=argparse.SUPPRESS, help="YAML file with settings; the environment wins")
    parser.add_argument("--once", action="store_true", help="catch up, then end")
    parser.set_defaults(act=_act)


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    if not settings.lake.iceberg:
        raise ConfigError("LAKE__ICEBERG names no catalog")
    try:
        from headrace_lake.commands.mirror.follower import Follower
        from headrace_lake.commands.mirror.metrics import MirrorMetrics
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'headrace-lake[iceberg]'") from error
    metrics = MirrorMetrics()
    follower = Follower(settings.lake, metrics, log)
    if arguments.once:
        follower.once()
        return
    for number in stops():
        signal.signal(number, follower.stop)
    OpsThread(settings.ops, follower, metrics).start()
    follower.run()
