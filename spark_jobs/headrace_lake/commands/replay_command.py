"""``python -m headrace_lake replay``: the command line of `replay`."""

from __future__ import annotations

import argparse
import signal
import threading
from datetime import UTC, datetime
from typing import Any

from headrace_common.operations.log import Log
from headrace_common.operations.tasks import stops

from headrace_lake.commands.replay import Replay
from headrace_lake.commands.replay_rows import ReplayRows
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.kafka.source import Brokers
from headrace_lake.spark.engine import running
from headrace_lake.tables.on_spark import Tables


def add(commands: Any) -> None:
    """Adds ``replay`` to the command line."""
    parser = commands.add_parser(
        "replay",
        help="land records again that the tables lack within ranges landed before",
        description="Lands records again that the tables lack within ranges that were landed before. Existing rows stay"
        " untouched. A running job stops; start it again afterwards. If the replay was killed or stopped, run it again.",
    )
    parser.add_argument(
        "--from-time",
        type=moment,
        metavar="T",
        required=True,
        help="what landed at T or later, like 2026-05-06T12:00:00Z; a record lands after it was received",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what the replay would do, and change nothing")
    parser.set_defaults(act=_act)


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    stop = threading.Event()
    for number in stops():
        signal.signal(number, lambda *_: stop.set())
    with running(settings.lake, settings.log) as spark:
        rows = ReplayRows(Tables(spark, location(settings.lake.path)), Brokers(spark, settings.kafka), settings)
        Replay(rows, arguments.from_time, dry_run=arguments.dry_run, log=log, stopping=stop.is_set).run()


def moment(text: str) -> datetime:
    """Returns the time in `text`, UTC unless it says otherwise. Raises `argparse.ArgumentTypeError`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in ISO 8601") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
