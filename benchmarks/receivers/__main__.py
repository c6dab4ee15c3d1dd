"""``python -m benchmarks.receivers forward | courier | lumberjack | logjam | segment``, from the repository's root."""

from __future__ import annotations

import argparse

from . import courier, forward, load, logjam, lumberjack, segment

MODULES = (forward, courier, lumberjack, logjam, segment)


def main() -> None:
    """Runs one command and writes its results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.receivers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for module in MODULES:
        text = (module.__doc__ or "").strip()
        command = commands.add_parser(
            module.__name__.rpartition(".")[2].replace("_", "-"),
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.add_argument("--dry", action="store_true", help="a trial: write no results")
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    name, result, text = arguments.run(arguments)
    print(text)
    if not arguments.dry:
        load.write(name, result, text)


if __name__ == "__main__":
    main()
