"""``python -m headrace_lake [--once]``: the landing job. ``… replay`` goes back first, ``… erase`` changes the tables.

Exits with 0, with 78 (wrong settings) or with 1 (the job had to stop: one line says why).
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from typing import Any, Final

from headrace_lake.configuration import ACCEPT

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


def main() -> int:
    """Runs the command; returns the exit status."""
    arguments = parser().parse_args()
    from headrace_lake.commands.process import run  # with Spark, which the help does without

    return run(arguments)


def parser() -> argparse.ArgumentParser:
    """Returns the parser."""
    line = argparse.ArgumentParser(
        prog="python -m headrace_lake",
        description="Copies both topics into the lake's tables, every record exactly once.",
    )
    line.add_argument("--once", action="store_true", help="land what Kafka holds now, then end (for cron)")
    line.add_argument(
        ACCEPT,
        action="store_true",
        help="record in the table gaps what Kafka deleted before it was landed, and continue after it",
    )
    commands = line.add_subparsers(dest="command", title="commands", metavar="COMMAND", description="default: land")
    replay = commands.add_parser(
        "replay",
        help="land records again that the tables lack",
        description="Goes back, and lands the records again that the tables lack. Existing rows stay untouched. A running job"
        " stops; start it again afterwards. If the replay was killed or stopped, any job goes on with it.",
    )
    replay.add_argument(
        "--from-time",
        type=datetime.fromisoformat,
        metavar="T",
        required=True,
        help="go back to what landed at T or later, like 2026-05-06T12:00:00Z; a record lands after it was received",
    )
    _add_erase(commands)
    return line


def _add_erase(commands: Any) -> None:
    erase = commands.add_parser(
        "erase",
        help="delete records on request, so that they never land again",
        description="Deletes the records for which the condition holds from the tables events and quarantine, and lists them"
        " in the table erasures. Without --apply it only counts. A running job may go on.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    erase.add_argument(
        "--where", default="", metavar="SQL", help="a condition over the columns of events, in the SQL of Spark"
    )
    erase.add_argument("--reason", default="", help="why; kept in the table, so name no person")
    erase.add_argument("--by", default="", metavar="NAME", help="who asked; default: the user of this process")
    erase.add_argument("--finish", action="store_true", help="delete what earlier erasures have left; no condition")
    erase.add_argument("--apply", action="store_true", help="erase; without it, say what would go")
    erase.set_defaults(refuse=erase.error)


if __name__ == "__main__":
    sys.exit(main())
