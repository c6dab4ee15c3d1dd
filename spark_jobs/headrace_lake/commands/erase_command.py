"""``python -m headrace_lake erase``: the command line of `erase`."""

from __future__ import annotations

import argparse
import getpass
import os
from datetime import UTC, datetime
from typing import Any, Final

from headrace_common.operations.log import Log

from headrace_lake.commands.erase import Erase, ErasureRequest
from headrace_lake.commands.erase_rows import ErasureRows
from headrace_lake.commands.predicate import parse
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.spark.engine import running
from headrace_lake.tables.on_spark import Tables

_EXAMPLES: Final = """examples:
  what it would erase:
    python -m headrace_lake erase --where body.user.email=ada@example.org
  erase it:
    python -m headrace_lake erase --where body.user.email=ada@example.org --reason "ticket 4711" --by dpo --apply
  all that a host sent in an hour:
    python -m headrace_lake erase --where source=/lumberjack/web-1 --from-time 2026-05-06T12:00 --to-time 2026-05-06T13:00
  finish an erasure that was killed, or put right a restored backup:
    python -m headrace_lake erase --finish --apply
"""


def add(commands: Any) -> None:
    """Adds ``erase`` to the command line."""
    parser = commands.add_parser(
        "erase",
        help="delete records on request, so that they never land again",
        description="Deletes the records for which all conditions hold from the tables events and quarantine, and lists them"
        " in the table erasures. Without --apply it only counts. A running job may go on.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="NAME=VALUE",
        help="id, source, stream, protocol, body.PATH or attributes.PATH has this value; of several, all must hold."
        " PATH: .name, ['any name'] and [0]",
    )  # fmt: skip
    parser.add_argument(
        "--from-time", type=moment, metavar="T", help="received at T or later, like 2026-05-06T12:00:00Z"
    )
    parser.add_argument("--to-time", type=moment, metavar="T", help="received before T")
    parser.add_argument("--reason", default="", help="why; kept in the table, so name no person")
    parser.add_argument("--by", default="", metavar="NAME", help="who asked; default: the user of this process")
    parser.add_argument("--finish", action="store_true", help="delete what earlier erasures have left; no conditions")
    parser.add_argument("--apply", action="store_true", help="erase; without it, say what would go")
    parser.set_defaults(act=_act, refuse=parser.error)


def request_of(arguments: argparse.Namespace) -> ErasureRequest:
    """Returns the request; ends the process with status 2 and a sentence if the arguments make none."""
    try:
        predicate = parse(arguments.where, arguments.from_time, arguments.to_time)
    except ValueError as error:
        arguments.refuse(str(error))
    if arguments.from_time and arguments.to_time and arguments.from_time >= arguments.to_time:
        arguments.refuse("--from-time is not before --to-time")
    if bool(predicate) == arguments.finish:
        arguments.refuse(
            "--finish takes no conditions" if predicate else "name what to erase: --where, --from-time or --to-time"
        )
    if arguments.apply and not arguments.finish and not arguments.reason.strip():
        arguments.refuse("--apply needs --reason")
    reason = arguments.reason.strip() or "finishes earlier erasures"
    return ErasureRequest(predicate, reason, arguments.by or _user())


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    request = request_of(arguments)
    with running(settings.lake, settings.log) as spark:
        tables = Tables(spark, location(settings.lake.path))
        Erase(tables, ErasureRows(tables), request, apply=arguments.apply, log=log).run()


def moment(text: str) -> datetime:
    """Returns the time in `text`, UTC unless it says otherwise. Raises `argparse.ArgumentTypeError`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in ISO 8601") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
