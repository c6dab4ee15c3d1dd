"""``python -m headrace_common.operations.probe [--live]``: asks the part of this host or container whether it is ready, or alive.

For health checks that run a command: exit status 0 if yes, 1 if not, with the reasons on standard output. It reads OPS__HOST and
OPS__PORT from the environment, as the part itself does. It imports only the standard library, because it runs every few seconds.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
from collections.abc import Sequence
from typing import Final

OPS_PORT: Final = 8080
"""Default of OPS__PORT."""

TIMEOUT: Final = 4.0
"""Seconds within which the part must answer."""

_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  (no address to connect to)


def probe(host: str, port: int, path: str, timeout: float = TIMEOUT) -> tuple[bool, str]:
    """Returns whether the part answers `path` with 200, and the text of its answer or the reason why there is none.

    Blocks for at most about `timeout` seconds.
    """
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status == http.client.OK, answer.read(65_536).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{host}:{port} does not answer: {error or type(error).__name__}"
    finally:
        connection.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_common.operations.probe", description="Ask the part of this host whether it is ready."
    )
    parser.add_argument("--live", action="store_true", help="ask whether it is alive instead (/livez)")
    parser.add_argument("--port", type=int, default=None, help="default: HEADRACE_OPS__PORT, or 8080")
    arguments = parser.parse_args(argv)
    host = os.environ.get("HEADRACE_OPS__HOST", "")
    given = os.environ.get("HEADRACE_OPS__PORT", "") if arguments.port is None else str(arguments.port)
    if given and not given.isdigit():
        print(f"HEADRACE_OPS__PORT: {given} is no port")
        return 1
    good, text = probe(
        "127.0.0.1" if host in _EVERYWHERE else host,
        int(given or OPS_PORT),
        "/livez" if arguments.live else "/readyz",
    )
    print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
