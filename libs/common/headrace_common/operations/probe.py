"""``python -m headrace_common.operations.probe``: asks the part of this container whether it is ready.

For health checks that run a command: exit status 0 if it is, 1 if not, with the reasons on standard output. It reads OPS__HOST
and OPS__PORT from the environment, as the part itself does, and imports only the standard library: it runs every few seconds.
"""

from __future__ import annotations

import http.client
import os
import sys
from typing import Final

OPS_PORT: Final = 8080
"""Default of OPS__PORT."""

TIMEOUT: Final = 4.0
"""Seconds within which the part must answer."""

_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  (no address to connect to)


def main() -> int:
    """Returns the exit status. Blocks for about `TIMEOUT` at most."""
    host, port = (os.environ.get(f"HEADRACE_OPS__{name}", "") for name in ("HOST", "PORT"))
    try:
        connection = http.client.HTTPConnection(
            "127.0.0.1" if host in _EVERYWHERE else host, int(port or OPS_PORT), timeout=TIMEOUT
        )
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        print(answer.read(65_536).decode(errors="replace").strip())
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"no answer: {error or type(error).__name__}")
        return 1
    return 0 if answer.status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
