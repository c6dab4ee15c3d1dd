"""``python -m headrace_common NAME``: the receiver of the protocol that is installed under this name."""

from __future__ import annotations

import argparse

from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.variables import named_protocols
from headrace_common.protocol import PROGRAM, loaded, run


def main() -> None:
    """Runs a receiver until it is told to stop. Exits 78 if its package or its settings are wrong, 1 if a task has ended."""
    about = "A receiver of Headrace; acknowledges a client after Kafka has stored its events."
    parser = argparse.ArgumentParser(prog=PROGRAM, description=about)
    parser.add_argument("protocol", choices=named_protocols())
    name = parser.parse_args().protocol
    try:
        protocol = loaded(named_protocols()[name])
    except ConfigError as error:
        parser.exit(EXIT_CONFIG, f"{PROGRAM} {name}: {error}\n")
    run(protocol)


if __name__ == "__main__":
    main()
