"""TCP ports of this machine that are free."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.sockets import bound_socket

from headrace_cli.ground import CommandError

_TAKEN: Final = (errno.EADDRINUSE, errno.EACCES)
_HELD: Final[list[socket.socket]] = []


def free_port(host: str = "127.0.0.1", wanted: int = 0) -> int:
    """Return a port that is free now: `wanted` if it is. On Linux the system gives it to no other while this process lives.

    Linux lets a listener with SO_REUSEADDR, which every server sets, share the port with the socket that holds it. Elsewhere
    another process may take the port before the caller does. Raises `CommandError` if `host` is no address of this machine.
    """
    holds = _bound(host, wanted) or _bound(host, 0)
    assert holds is not None  # the system has given a port
    port: int = holds.getsockname()[1]
    if sys.platform == "linux":
        _HELD.append(holds)
    else:
        holds.close()
    return port


def _bound(host: str, port: int) -> socket.socket | None:
    """Return a socket that is bound there; None if the port is in use, or reserved for root. Raises `CommandError`."""
    try:
        return bound_socket(host, port, "--host")
    except ConfigError as error:
        cause = error.__cause__
        assert isinstance(cause, OSError)
        if cause.errno in _TAKEN:
            return None
        said = f"Nothing can listen on {host}: {cause.strerror}. It must be an address of this machine."
        raise CommandError(said, status=2) from cause
