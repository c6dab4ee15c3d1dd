"""``python -m headrace_lake erase``: the command line of `erase`."""

from __future__ import annotations

import argparse
import getpass
from typing import Any, Final

from headrace_common.operations.log import Log

from headrace_lake.commands.erase import Erase, ErasureRequest
from headrace_lake.commands.erase_rows import ErasureRows
from headrace_lake.configuration.settings import LakeProcessSettings, location
from headrace_lake.spark.engine import running
from headrace_lake.tables.on_spark import Tables

_EXAMPLES: Final = """examples:
  what it would erase:
    python -m headrace_lake erase --where "get_json_object(body, '$.user.email') = 'ada@example.org'"
  erase it:
    python -m headrace_lake erase --where "get_json_object(body, '$.user.email') = 'ada@example.org'" \\
      --reason "ticket 4711" --by dpo --apply
  all that a host has sent since noon (UTC):
    python -m headrace_lake erase --where "source = '/lumberjack/web-1' and received_time >= '2026-05-06 12:00'"
  finish an erasure that was killed, or put right a restored backup:
    python -m headrace_lake erase --finish --apply
"""


def add(commands: Any) -> None:
    """Adds ``erase`` to the command line."""
    parser = commands.add_parser(
        "erase",
        help="delete records on request, so that they never land again",
        description="Deletes the records for which the condition holds from the tables events and quarantine, and lists them"
        " in the table erasures. Without --apply it only counts. A running job may go on.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--where", default="", metavar="SQL", help="a condition over the columns of events, in the SQL of Spark"
    )
    parser.add_argument("--reason", default="", help="why; kept in the table, so name no person")
    parser.add_argument("--by", default="", metavar="NAME", help="who asked; default: the user of this process")
    parser.add_argument("--finish", action="store_true", help="delete what earlier erasures have left; no condition")
    parser.add_argument("--apply", action="store_true", help="erase; without it, say what would go")
    parser.set_defaults(act=_act, refuse=parser.error)


def request_of(arguments: argparse.Namespace) -> ErasureRequest:
    """Returns the request; ends the process with status 2 and a sentence if the arguments make none."""
    if bool(arguments.where.strip()) == arguments.finish:
        arguments.refuse("--finish takes no condition" if arguments.finish else "name what to erase: --where")
    if arguments.apply and not arguments.finish and not arguments.reason.strip():
        arguments.refuse("--apply needs --reason")
    reason = arguments.reason.strip() or "finishes earlier erasures"
    return ErasureRequest(arguments.where, reason, arguments.by or getpass.getuser())


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    request = request_of(arguments)
    with running(settings.lake, settings.log) as spark:
        tables = Tables(spark, location(settings.lake.path))
        Erase(tables, ErasureRows(tables), request, apply=arguments.apply, log=log).run()
