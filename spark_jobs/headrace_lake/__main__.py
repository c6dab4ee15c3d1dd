"""``python -m headrace_lake [--once]``: the landing job; ``… migrate`` and the like act on the tables while no job runs.

Exits with 0, 78 (settings) or 1 (it had to stop: one line says why).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace_common import log as logs
from headrace_common.errors import EXIT_CONFIG, ConfigError, HeadraceError
from headrace_common.log import Log
from headrace_common.metrics import LakeMetrics
from headrace_common.settings import describe, load

from headrace_lake import migrate, replay_command
from headrace_lake.causes import root_cause
from headrace_lake.engine import remarks, running
from headrace_lake.gaps import ACCEPT
from headrace_lake.job import Job
from headrace_lake.operations import LakeHealth, OpsThread
from headrace_lake.settings import LakeProcessSettings, location

_COMMANDS: Final[tuple[Callable[[Any], None], ...]] = (migrate.add, replay_command.add)
"""Each adds its parser to what `add_subparsers` returned, with `act` as its default (see `_parser`)."""


def main() -> int:
    """Does what the command line says; returns the exit status."""
    arguments = _parser().parse_args()
    try:
        settings = load(LakeProcessSettings, arguments.config)
    except ConfigError as error:
        print(f"headrace_lake: {error}", file=sys.stderr)
        return EXIT_CONFIG
    log = logs.configure(settings.log, "lake")
    try:
        arguments.act(settings, arguments, log)
    except ConfigError as error:
        log.error("stopped", reason=str(error))
        return EXIT_CONFIG
    except HeadraceError as error:
        log.error("stopped", reason=str(error))
        return 1
    except Exception as error:
        log.debug("failed", exc_info=error)
        log.error("stopped", reason=root_cause(error))
        return 1
    log.info("ended")
    return 0


def _parser() -> argparse.ArgumentParser:
    """Every command sets `act`: a function of (settings, arguments, log) that raises `HeadraceError`."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_lake",
        description="Carries both topics into the lake's tables, every record exactly once.",
        epilog="environment:\n" + "\n".join(f"  {line}" for line in describe(LakeProcessSettings)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, help="YAML file with settings; the environment wins")
    parser.add_argument("--once", action="store_true", help="land what is there now, then end (for cron)")
    parser.add_argument(
        ACCEPT,
        action="store_true",
        help="note what Kafka deleted before it was landed in the table of gaps, and go on behind it",
    )
    parser.set_defaults(act=_land)
    if _COMMANDS:
        commands = parser.add_subparsers(title="commands", metavar="COMMAND", description="default: land")
        for add in _COMMANDS:
            add(commands)
    return parser


def _land(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    metrics = LakeMetrics()
    health = LakeHealth(metrics)
    ops = OpsThread(settings.ops, health, metrics)
    ops.start()
    log.info("starting", ops_port=ops.port)
    with running(settings.lake, settings.log) as spark:
        places = {"LAKE__PATH": settings.lake.path, "LAKE__CHECKPOINT": settings.lake.checkpoint}
        for remark in remarks(spark, {name: location(path) for name, path in places.items()}):
            log.warning("remark", what=remark)
        job = Job(spark, settings, once=arguments.once, log=log, health=health, accept_loss=arguments.accept_loss)
        signal.signal(signal.SIGTERM, job.stop)
        signal.signal(signal.SIGINT, job.stop)
        job.run()


if __name__ == "__main__":
    sys.exit(main())
