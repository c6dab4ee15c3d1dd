"""``python -m headrace_common NAME``: the receiver of the protocol that is installed under this name."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import Any, Final, cast

from headrace_common.operations.errors import EXIT_CONFIG, ConfigError
from headrace_common.operations.variables import named_protocols
from headrace_common.protocol import loaded

EXIT_ENDED: Final = 1
"""Exit status after one of the service's tasks has ended."""


def main() -> None:
    """Runs a receiver until it is told to stop. Exits 78 if its package or its settings are wrong, 1 if a task has ended."""
    about = "A receiver of Headrace; acknowledges a client after Kafka has stored its events."
    parser = argparse.ArgumentParser(prog="python -m headrace_common", description=about)
    parser.add_argument("protocol", choices=named_protocols())
    name = parser.parse_args().protocol
    try:
        protocol = loaded(named_protocols()[name])
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C while modules load ends the process, as SIGTERM does
        # structlog would load `rich` for a console where that is installed: a tenth of a receiver's memory, a fifth of its start
        sys.modules.setdefault("rich", cast("Any", None))
        from headrace_common.service.service import run

        problem = run(name, protocol.settings, protocol.build)
    except ConfigError as error:
        parser.exit(EXIT_CONFIG, "".join(f"{parser.prog} {name}: {line}\n" for line in str(error).splitlines()))
    if problem is not None:
        parser.exit(EXIT_ENDED, f"{parser.prog} {name}: {problem}\n")


if __name__ == "__main__":
    main()
