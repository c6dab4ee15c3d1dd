"""``python -m headrace_lake replay``: the command line of `replay`."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from datetime import UTC, datetime
from typing import Any

from headrace_common.operations.log import Log
from headrace_common.operations.tasks import stops

from headrace_lake.commands.replay import Replay
from headrace_lake.commands.replay_plan import ReplayRequest
from headrace_lake.commands.replay_rows import ReplayRows
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.kafka.source import Brokers, TopicPartition
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
    begin = parser.add_mutually_exclusive_group(required=True)
    begin.add_argument(
        "--from-time", type=moment, metavar="T", help="records received at T or later, like 2026-05-06T12:00:00Z"
    )
    begin.add_argument(
        "--from-offsets", type=_offsets, metavar="JSON", help='records from these offsets on, like {"topic": {"0": 5}}'
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--to-time", type=moment, metavar="T", help="only records received before T")
    end.add_argument("--to-offsets", type=_offsets, metavar="JSON", help="only records before these offsets")
    parser.add_argument("--dry-run", action="store_true", help="say what the replay would do, and change nothing")
    parser.set_defaults(act=_act)


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    request = ReplayRequest(arguments.from_time, arguments.to_time, arguments.from_offsets, arguments.to_offsets)
    stop = threading.Event()
    for number in stops():
        signal.signal(number, lambda *_: stop.set())
    with running(settings.lake, settings.log) as spark:
        rows = ReplayRows(Tables(spark, location(settings.lake.path)), Brokers(spark, settings.kafka), settings)
        Replay(rows, request, dry_run=arguments.dry_run, log=log, stopping=stop.is_set).run()


def moment(text: str) -> datetime:
    """Returns the time in `text`, UTC unless it says otherwise. Raises `argparse.ArgumentTypeError`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in ISO 8601") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _offsets(text: str) -> dict[TopicPartition, int]:
    try:
        return {
            (str(topic), int(number)): int(offset)
            for topic, partitions in json.loads(text).items()
            for number, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError('expected JSON like {"topic": {"0": 5}}') from error
