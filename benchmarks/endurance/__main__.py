"""``python -m benchmarks.endurance kills | steady | fresh``, from the repository's root."""

from __future__ import annotations

import argparse
import sys

from benchmarks.endurance import fresh, kills, steady


def main() -> int:
    """Runs one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (kills, steady, fresh):
        name = module.__name__.rpartition(".")[2]
        text = (module.__doc__ or "").strip()
        command = commands.add_parser(
            name, help=text.splitlines()[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.arguments(command)
        command.add_argument("--dry", action="store_true", help="a trial: write no results")
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
